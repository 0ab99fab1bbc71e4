"""One SQLite file of ours: where it lies, how it is opened, damage told from a full disk.

What the tables mean is known above: the ledger, and what is learned of jobs.
"""
