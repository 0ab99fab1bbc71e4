"""What an agent asks Slurm, and what it reports there."""
