"""Attacks of an ordinary user on others: `make abuse`."""
