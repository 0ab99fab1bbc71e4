"""A recorded machine under the planner: what a site would gain, before it installs anything.

Readers turn logs into idle intervals of nodes. `world` is the machine that has them, with malleable
jobs on it: `planning` decides about its snapshots. What is not replayed is listed in
docs/admins/replay.md. Nothing in here talks to Slurm.
"""
