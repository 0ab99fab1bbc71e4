"""The history of ticks in an SQLite file, for the report and the metrics.

It decides no question about jobs, and no tick depends on it: the truth is in Slurm.
"""
