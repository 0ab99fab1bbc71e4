"""`malleable top`: the machine in one terminal, read-only."""
