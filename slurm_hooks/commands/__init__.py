"""The commands of `malleable`, a module for each family of commands."""
