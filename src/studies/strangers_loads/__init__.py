"""Do plans agree with what llama.cpp logged on strangers' machines, on every backend?"""
