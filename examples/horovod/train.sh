#!/bin/bash
#SBATCH --job-name=horovod
#SBATCH --malleable=1-4,engine=mpi
#SBATCH --time=00:10:00
#SBATCH --time-min=00:02:00
#SBATCH --output=horovod-%A_%a.log
#SBATCH --open-mode=append

malleable run -- mpirun python3 train.py "$@"
