#!/bin/bash
#SBATCH --job-name=dask-workers
#SBATCH --malleable=0-16,engine=pool
#SBATCH --time=08:00:00
#SBATCH --cpus-per-task=1
#SBATCH --output=dask-workers-%A_%a.log
#SBATCH --open-mode=append

# A Dask worker on each node that can be spared, with leave.py from the directory of submission.
# The scheduler runs elsewhere: dask scheduler --scheduler-file scheduler.json
exec malleable run -- dask worker --scheduler-file "${SCHEDULER_FILE:-scheduler.json}" \
  --host "$MALLEABLE_ADDR" --nthreads "${SLURM_CPUS_PER_TASK:-1}" --no-dashboard \
  --preload-nanny leave.py --preload leave.py
