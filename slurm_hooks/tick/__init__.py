"""One tick, and everything that runs, locks, switches and books it."""
