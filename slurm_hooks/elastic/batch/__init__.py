"""What an agent asks Slurm, and what it tells Slurm."""
