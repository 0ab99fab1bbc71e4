"""What one tick saw, as a file: its schema, and reading and writing it."""
