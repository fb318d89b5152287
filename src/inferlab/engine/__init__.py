"""llama.cpp in a process of its own, asked through pipes; a notebook survives whatever happens in it.

`protocol` says what an engine is asked and answers, `client` asks, `worker` is the process that loads llama.cpp,
`session` holds the one engine that a notebook shares.
"""
