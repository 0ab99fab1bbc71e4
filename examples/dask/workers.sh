#!/bin/bash
#SBATCH --job-name=dask-workers
#SBATCH --malleable=1-16,engine=pool
#SBATCH --time=08:00:00
#SBATCH --cpus-per-task=2
#SBATCH --output=dask-workers-%A.log
#SBATCH --open-mode=append

# One Dask worker per node, for as long as the node can be spared. The scheduler runs elsewhere:
#   dask scheduler --scheduler-file scheduler.json
here=$(dirname "$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=//p')")
exec malleable run -- dask worker --scheduler-file "${SCHEDULER_FILE:-scheduler.json}" \
  --host "$MALLEABLE_ADDR" --nthreads "$SLURM_CPUS_PER_TASK" --no-dashboard \
  --preload-nanny "$here/leave.py" --preload "$here/leave.py"
