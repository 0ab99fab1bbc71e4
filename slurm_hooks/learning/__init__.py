"""How jobs scale, learned from what they show: pure, from rates to curves and to what to look at.

docs/learning.md has the formulae and their sources.
"""
