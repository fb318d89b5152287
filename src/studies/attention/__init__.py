"""What does FlashAttention spare?"""

RECORDS = {"attention timings": "torch_attention:Timings"}
