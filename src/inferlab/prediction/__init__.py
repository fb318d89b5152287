"""What can be said before anything is loaded: bytes in closed form, seconds from a calibration, and what would fit."""
