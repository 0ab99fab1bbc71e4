"""Malleable jobs on a recorded machine: their nodes, their progress, and the clock."""
