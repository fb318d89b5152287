"""What does choosing a token cost?"""

RECORDS = {
    "benchmark programs": "study:BenchmarkPrograms",
    "JSON answers": "study:JsonAnswers",
    "sampling": "study:Sampling",
}
