"""Which processor computes which operation?"""

RECORDS = {"graph trace": "graph:GraphTrace"}
