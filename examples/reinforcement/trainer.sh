#!/bin/bash
#SBATCH --job-name=rl-trainer
#SBATCH --nodes=1
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --dependency=singleton
#SBATCH --output=trainer.log
#SBATCH --open-mode=append

# An ordinary job, which stays. If Slurm requeues it, it goes on from its checkpoint.
exec python3 trainer.py "$@"
