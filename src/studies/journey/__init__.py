"""How long does a conversation take from the start of the program to a full context?"""

RECORDS = {"journey": "study:Journey"}
