"""How fast can a machine's memory, links and arithmetic be?"""

RECORDS = {"link rates": "study:LinkRates"}
