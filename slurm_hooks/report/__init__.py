"""Values printed for people and programs: no decisions, no Slurm."""
