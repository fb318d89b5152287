"""What do a kept cache, a shared prefix and a full batch spare?"""

RECORDS = {"prefix reuse": "prefix_cache:PrefixReuse", "schedule": "continuous_batching:Schedule"}
