"""What was measured for the book, and on which machines?"""
