"""What the machine does while a model runs: readings of NVML and of the operating system, taken beside the work."""
