"""What changes an answer: threads, batches, cache types, slots?"""

RECORDS = {"served answers": "study:ServedAnswers"}
