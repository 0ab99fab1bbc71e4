#!/bin/bash
#SBATCH --job-name=jax
#SBATCH --malleable=1-4,engine=command
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --output=jax-%A.log
#SBATCH --open-mode=append

malleable run --grace=2 -- python3 train.py "$@"
