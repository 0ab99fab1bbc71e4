"""Malleable jobs where nobody has installed anything: an ordinary job array of one user, in a
partition or QOS from which Slurm takes nodes back.

`malleable submit` writes the batch script. In each element it runs `element.py`, which starts the
user's script and does the part of a reconciler that the job needs.
"""
