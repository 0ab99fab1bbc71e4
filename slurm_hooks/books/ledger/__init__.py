"""What happened, tick by tick, in one SQLite file: for the report and the metrics.

Nothing here decides anything about jobs, and no tick depends on it: the truth is in Slurm.
"""
