"""All knowledge of Slurm's commands: the questions, how to read answers, how to run them."""
