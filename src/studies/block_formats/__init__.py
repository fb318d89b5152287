"""How does a block of quantized weights hold its values?"""
