"""What lies on each of several cards, and what travels between them?"""

RECORDS = {"several cards": "study:SeveralCards"}
