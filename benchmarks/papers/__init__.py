"""Replays as papers describe them: any policy answers each change of the machine at once.

`malleable replay` replays the shipped programs, and plans ticks (`slurm_hooks/replay/world`). These
simulations show that the work and the figures agree with the publications.
"""
