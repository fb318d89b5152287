"""Measurements: each module times one thing through the engine and keeps every sample.

Nothing here imports `prediction`, so a measurement does not depend on the prediction that it tests.
"""
