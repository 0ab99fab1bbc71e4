#!/bin/bash
#SBATCH --job-name=architecture
#SBATCH --malleable=0-16,engine=pool
#SBATCH --time=01:00:00
#SBATCH --time-min=00:02:00
#SBATCH --cpus-per-task=1
#SBATCH --output=architecture-%A_%a.log
#SBATCH --open-mode=append

exec malleable run -- python3 search.py "$@"
