"""Deciding code: takes values and returns values.

No clock, file, environment, randomness or log in here; the shell around it brings all of those.
"""
