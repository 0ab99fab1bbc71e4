#!/bin/bash
#SBATCH --job-name=ray-workers
#SBATCH --malleable=0-16,engine=pool
#SBATCH --time=08:00:00
#SBATCH --cpus-per-task=1
#SBATCH --output=ray-workers-%A_%a.log
#SBATCH --open-mode=append

# A Ray worker node on each node that can be spared. The head runs elsewhere, with no CPUs of its own:
#   ray start --head --num-cpus=0 --port=6379
# RAY_HEAD is its address, host:6379. At SIGTERM a worker drains: it takes nothing new and ends when
# its tasks have ended, or after so many seconds of the notice.
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=$((MALLEABLE_NOTICE_S > 10 ? MALLEABLE_NOTICE_S - 10 : 2))
exec malleable run -- ray start --block --address "$RAY_HEAD" --node-ip-address "$MALLEABLE_ADDR" \
  --num-cpus "${SLURM_CPUS_PER_TASK:-1}" --temp-dir "/tmp/ray-$SLURM_JOB_ID" --disable-usage-stats
