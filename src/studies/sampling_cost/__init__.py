"""What does choosing a token cost?"""

RECORDS = {"benchmark programs": "study:BenchmarkPrograms", "sampling": "study:Sampling"}
