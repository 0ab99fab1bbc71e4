#!/bin/bash
#SBATCH --job-name=jax
#SBATCH --malleable=1-4,engine=command
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --output=jax-%A_%a.log
#SBATCH --open-mode=append

export JAX_ENABLE_PREEMPTION_SERVICE=false # else SIGTERM is news for JAX, and it works on
malleable run -- python3 train.py "$@"
