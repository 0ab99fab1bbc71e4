#!/bin/bash
#SBATCH --job-name=tensorflow
#SBATCH --malleable=1-4,engine=tensorflow
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --output=tensorflow-%A_%a.log
#SBATCH --open-mode=append

malleable run --grace=2 -- python3 train.py "$@"
