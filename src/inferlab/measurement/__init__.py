"""What was measured: each module times one thing through the engine and keeps every sample.

Nothing here imports `prediction`, so that a measurement can contradict one.
"""
