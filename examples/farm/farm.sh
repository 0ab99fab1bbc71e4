#!/bin/bash
#SBATCH --job-name=farm
#SBATCH --malleable=0-16,engine=pool
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --cpus-per-task=1
#SBATCH --output=farm-%A_%a.log
#SBATCH --open-mode=append

malleable run -- python3 worker.py "$@"
