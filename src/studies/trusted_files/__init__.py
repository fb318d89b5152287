"""What can a model file do to the program that reads it?"""
