"""What the command `malleable` does, one module for each family of commands."""
