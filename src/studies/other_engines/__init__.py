"""How do other engines run the same weights, and which one fits a purpose?"""

RECORDS = {"engine comparison": "study:EngineComparison"}
