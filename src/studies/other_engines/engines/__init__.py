"""Inference engines beside llama.cpp, each in a process of its own: for comparisons, never needed by anything else.

`conversion` writes a GGUF file's weights in an engine's format; `on_…` generate tokens with an engine, the engine's own
default loop; `worker` is the process, and `client` speaks to it. `pip install -e ".[engines]"` brings the engines.
"""
