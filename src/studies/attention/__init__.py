"""What does FlashAttention spare?"""

RECORDS = {"attention timings": "study:Timings"}
