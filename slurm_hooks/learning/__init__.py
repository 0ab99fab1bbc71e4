"""Learns from the rates that jobs report how they scale. Only `store` keeps files.

docs/admins/learning.md has the formulae and their sources.
"""
