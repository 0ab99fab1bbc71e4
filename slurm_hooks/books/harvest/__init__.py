"""What malleable jobs made of idle nodes, from one tick to the next: pure values and decisions.

Knows no clock, no file and no Slurm: `slurm_hooks.books.ledger` keeps what is derived here.
"""
