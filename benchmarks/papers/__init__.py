"""Replays as papers describe them: each change of the machine is answered at once, by any policy.

What ships is replayed by `malleable replay`, which plans ticks (`slurm_hooks/replay/world`). These
simulations show that the work and the figures agree with what was published.
"""
