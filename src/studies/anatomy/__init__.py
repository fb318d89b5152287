"""What is in a model's file, and what does each part cost?"""
