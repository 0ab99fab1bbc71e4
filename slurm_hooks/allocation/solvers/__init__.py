"""Solvers of an allocation problem. Each takes a problem and returns counts."""
