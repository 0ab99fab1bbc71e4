"""A recorded machine drives the planner: what a site would gain before it installs anything.

Readers turn logs into idle intervals of nodes, a simulator lets malleable jobs live in them, and
policies (the allocator that ships, and lines to compare it with) decide who gets which nodes.
Nothing in here talks to Slurm.
"""
