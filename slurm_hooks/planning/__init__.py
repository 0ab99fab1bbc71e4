"""Turns a snapshot into the plan of a tick."""
