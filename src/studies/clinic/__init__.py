"""What does a program say when it cannot load a model?"""
