"""Simulate the planner on a recorded machine, so that a site sees its gain before it installs.

Readers turn logs into idle intervals of nodes. `world` is the machine with these intervals and with
malleable jobs: `planning` decides on its snapshots. docs/admins/replay.md lists the omissions. No
module here talks to Slurm.
"""
