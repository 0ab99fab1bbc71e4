"""The checks: facts in, findings out. A module for each category ends with its table."""
