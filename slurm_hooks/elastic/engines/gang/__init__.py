"""Gangs that are started anew at each change of size: `malleable run -- COMMAND`."""
