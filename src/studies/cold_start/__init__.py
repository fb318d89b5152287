"""How long does a start take, how long should a program wait for it, and which memory does loading take?"""

RECORDS = {"load memory": "load_memory:LoadMemory"}
