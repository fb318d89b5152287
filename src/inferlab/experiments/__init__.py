"""Many measurements with a question: sweeps, searches for settings, faults made on purpose and told from signs."""
