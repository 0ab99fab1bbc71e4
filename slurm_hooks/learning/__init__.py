"""Learns from the rates that a job reports how it scales. All of it is pure.

docs/admins/learning.md has the formulae and their sources.
"""
