"""How long does a conversation take from the start of the program to a full context?"""

RECORDS = {"journey": "journey:Journey", "load memory": "load_memory:LoadMemory"}
