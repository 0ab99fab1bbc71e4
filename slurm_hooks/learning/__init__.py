"""How jobs scale, learned from what they show: from rates to curves. Only `store` keeps files.

docs/admins/learning.md has the formulae and their sources.
"""
