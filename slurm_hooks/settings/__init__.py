"""The settings: their values, and the file they come from."""
