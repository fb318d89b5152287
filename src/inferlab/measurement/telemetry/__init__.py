"""Telemetry: samples of the GPUs (NVML) and of the operating system, taken while a model runs."""
