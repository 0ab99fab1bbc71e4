"""An SQLite file of ours: its place, opening it, and telling damage from a full disk.

The layers above know the meaning of the tables.
"""
