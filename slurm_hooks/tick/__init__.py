"""Runs, locks, switches and books a tick."""
