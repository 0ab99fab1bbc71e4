"""Keeps the knowledge of how jobs scale between ticks, in a single SQLite file.

The modules above interpret it. No tick depends on the file. If it is lost, locked or damaged, the
knowledge is lost, and running jobs report it again.
"""
