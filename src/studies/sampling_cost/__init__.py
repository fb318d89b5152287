"""What does choosing a token cost?"""

RECORDS = {"benchmark programs": "benchmark_programs:BenchmarkPrograms", "sampling": "sampling:Sampling"}
