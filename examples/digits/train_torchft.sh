#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --malleable=1-4,engine=torchft
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --cpus-per-task=1
#SBATCH --output=digits-%A_%a.log
#SBATCH --open-mode=append

export RUST_LOG=warn # torchft tells every step otherwise
torchrun train_torchft.py "$@"
