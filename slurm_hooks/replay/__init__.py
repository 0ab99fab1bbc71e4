"""A recorded machine drives the allocator: what a site would gain, before it installs anything.

Readers turn logs into idle intervals of nodes, a simulator lets malleable jobs live in them, and
policies (the allocator that ships, and others to compare it with) decide who gets how many nodes.
What differs from the planner is listed in docs/replay.md. Nothing in here talks to Slurm.
"""
