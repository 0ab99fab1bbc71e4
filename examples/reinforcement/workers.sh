#!/bin/bash
#SBATCH --job-name=rl-workers
#SBATCH --malleable=0-16,engine=pool
#SBATCH --time=08:00:00
#SBATCH --time-min=00:02:00
#SBATCH --output=workers-%A_%a.log
#SBATCH --open-mode=append

# A rollout worker on each node that can be spared, as many as the trainer wishes for.
exec malleable run --wish-file=run/wish -- python3 worker.py "$@"
