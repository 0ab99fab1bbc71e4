"""The questions of an agent to Slurm, and its reports."""
