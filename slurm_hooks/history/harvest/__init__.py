"""Derives the use of idle nodes by malleable jobs from two ticks: pure values and decisions.

Knows no clock, no file and no Slurm. `slurm_hooks.history.ledger` keeps the results.
"""
