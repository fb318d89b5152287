"""What fits a smaller machine, and how fast can it be?"""
