"""The checks: facts in, findings out; one module per category, each ends with its table."""
