"""A recorded machine as Slurm would show it: it is planned for, and takes what was planned.

The decisions are those of `planning`. What really happens, such as pauses, lost work and nodes that
go, is simulated here.
"""
