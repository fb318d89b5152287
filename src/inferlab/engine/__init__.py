"""llama.cpp in a process of its own, connected by pipes; a crash there leaves the notebook untouched.

`protocol` lists requests and replies, `client` sends requests, `process` starts and stops the worker,
`worker` is the process that loads llama.cpp, `session` has the engine that all cells of a notebook share.
"""
