"""Rounds: the state that agents share, how it may change, and the directory that holds it."""
