#!/bin/sh
# Epilog of slurm-malleable: no process and no scratch of a fragment outlives it.
#
# The same manners as the Prolog. A training process that daemonised itself is found by the job
# and node in its environment, and killed only if it belongs to the job's user.
[ -n "$SPANK_MALLEABLE" ] || exit 0

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
[ "$1" = work ] || { timeout -k 1 10 "$0" work </dev/null; exit 0; }

scratch_root=/run/slurm-malleable/scratch
conf=${0%/*}/hooks.conf # written by the admin; sets scratch_root
# shellcheck source=/dev/null
[ -r "$conf" ] && . "$conf"

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_UID in '' | 0 | *[!0-9]*) owned= ;; *) owned=$SLURM_JOB_UID ;; esac

# A process of root is never touched: it could be anything.
if [ -n "$owned" ]; then
  # shellcheck disable=SC2044 # paths in /proc have no spaces
  for proc in $(find /proc -maxdepth 1 -name '[0-9]*' -uid "$owned" 2>/dev/null); do
    env=$({ tr '\0' '\n' <"$proc/environ"; } 2>/dev/null) || continue
    case "
$env
" in
      *"
SLURM_JOB_ID=$SLURM_JOB_ID
"*) ;;
      *) continue ;;
    esac
    # This script itself and its like, where slurmd runs as the user of the job.
    echo "$env" | grep -q '^SLURM_SCRIPT_CONTEXT=' && continue
    # Several slurmd may share a host, and several clusters a node.
    echo "$env" | grep -qx "SLURMD_NODENAME=$SLURMD_NODENAME" || continue
    echo "$env" | grep -qx "SLURM_CLUSTER_NAME=$SLURM_CLUSTER_NAME" || continue
    kill -KILL "${proc#/proc/}" 2>/dev/null
  done
fi

dir=$scratch_root/${SLURMD_NODENAME:-node}.$SLURM_JOB_ID
# Not followed if it is a link: only root writes in scratch_root.
[ -d "$dir" ] && [ ! -L "$dir" ] && rm -rf --one-file-system -- "$dir"
exit 0
