#!/bin/bash
#SBATCH --job-name=digits
#SBATCH --malleable=1-8,unit=gpu
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --output=digits-%A_%a.log
#SBATCH --open-mode=append

# With real GPUs plain `torchrun train.py` does the same. A sandbox's GPUs are fake: torch sees none to count.
torchrun --nproc-per-node="$SLURM_GPUS_ON_NODE" train.py "$@"
