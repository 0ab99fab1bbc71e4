"""A recorded machine in Slurm's view: it shows snapshots, and carries out plans.

`planning` makes the decisions. This package simulates their effects, such as pauses, lost work and
nodes that leave.
"""
