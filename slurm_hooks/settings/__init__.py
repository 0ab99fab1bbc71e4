"""The settings: their values and their file."""
