"""`malleable top`: the machine in a terminal, read-only."""
