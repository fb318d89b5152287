"""Which kernel multiplies a quantized matrix, and how fast?"""

RECORDS = {"repacking": "repacking:Pairs", "type rates": "type_rates:TypeRates"}
