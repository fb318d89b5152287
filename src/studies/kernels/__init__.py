"""Which kernel multiplies a quantized matrix, and how fast?"""

RECORDS = {"repacking": "study:Pairs", "type rates": "type_rates:TypeRates"}
