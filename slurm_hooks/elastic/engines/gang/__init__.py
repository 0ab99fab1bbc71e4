"""Gangs that start again at each change of size: `malleable run -- COMMAND`."""
