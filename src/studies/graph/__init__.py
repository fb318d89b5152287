"""Which processor computes which operation?"""

RECORDS = {"graph trace": "study:GraphTrace"}
