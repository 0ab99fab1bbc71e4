"""Who gets how many nodes: a problem in counts, what an answer is worth, and the way to one."""
