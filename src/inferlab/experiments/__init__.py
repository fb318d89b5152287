"""Experiments of many measurements: sweeps, tuning, comparison of types, injected faults and their diagnosis."""
