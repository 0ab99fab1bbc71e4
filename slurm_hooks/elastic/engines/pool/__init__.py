"""Workers that never meet: each runs a command on its own."""
