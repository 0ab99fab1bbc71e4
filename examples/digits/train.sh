#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --malleable=1-4
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --cpus-per-task=1
#SBATCH --output=digits-%A_%a.log
#SBATCH --open-mode=append

torchrun train.py "$@"
