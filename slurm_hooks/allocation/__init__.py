"""Shares out nodes: a problem in counts, the worth of an answer, and the way to an answer."""
