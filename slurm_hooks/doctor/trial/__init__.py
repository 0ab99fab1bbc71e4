"""The active check: run a small malleable job through its whole life, and clean up."""
