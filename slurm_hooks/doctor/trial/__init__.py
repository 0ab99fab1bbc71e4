"""The active check: a tiny malleable job goes through its whole life, and nothing is left of it."""
