"""All that is known of Slurm's commands: what to ask, how to read it, how to run it."""
