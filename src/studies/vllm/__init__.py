"""What does vLLM reserve on a card, and which weights can it read?"""
