#!/bin/sh
# Epilog of slurm-malleable: end every process of a fragment.
#
# Runs as root after every job on every node, so: other people's jobs leave at the first line, no
# Slurm command is called (that can hang a node), a deadline bounds everything, and the exit code
# is always 0 (any other drains the node). A training process that daemonised itself is found by
# the job and node in its environment. It is looked for and killed with the rights of the job's
# user and no more, so a number that has passed on to another process cannot hit another user.
[ -n "$SPANK_MALLEABLE" ] || exit 0

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
newline='
'

end_processes() { # job, node, cluster; `again` says that another look may show more
  again=
  # shellcheck disable=SC2044 # paths in /proc have no spaces
  for proc in $(find /proc -maxdepth 1 -name '[0-9]*' -uid "$(id -u)" 2>/dev/null); do
    env=$newline$({ tr '\0' '\n' <"$proc/environ"; } 2>/dev/null)$newline || continue
    case $env in
      # The kernel is just starting a program in it, or it has wiped its environment.
      "$newline$newline") again=yes && continue ;;
      # This script itself and its like, where slurmd runs as the user of the job.
      *"${newline}SLURM_SCRIPT_CONTEXT="*) continue ;;
    esac
    # Several slurmd may share a host, and several clusters a node.
    for line in "SLURM_JOB_ID=$1" "SLURMD_NODENAME=$2"; do
      case $env in *"$newline$line$newline"*) ;; *) continue 2 ;; esac
    done
    case $env in # slurmstepd of 23.11.0 to 23.11.4 does not know the cluster's name
      *"${newline}SLURM_CLUSTER_NAME=$3$newline"* | *"${newline}SLURM_CLUSTER_NAME=(null)$newline"*) ;;
      *) continue ;;
    esac
    kill -KILL "${proc#/proc/}" 2>/dev/null && again=yes # it may have started another meanwhile
  done
}

if [ "$1" = work ]; then
  end_processes "$2" "$3" "$4"
  [ -z "$again" ] || { sleep 0.1; end_processes "$2" "$3" "$4"; }
  exit 0
fi

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_GID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_UID in '' | 0 | *[!0-9]*) exit 0 ;; esac # a process of root could be anything

drop=
if [ "$(id -u)" != "$SLURM_JOB_UID" ]; then # the usual case; without setpriv it does no work
  drop="setpriv --reuid=$SLURM_JOB_UID --regid=$SLURM_JOB_GID --clear-groups --no-new-privs"
fi
# With its own environment, or it would look like a process of the job.
# shellcheck disable=SC2086 # a list of words
env -i PATH="$PATH" SPANK_MALLEABLE=1 SLURM_SCRIPT_CONTEXT=epilog_slurmd timeout -k 1 10 \
  $drop "$0" work "$SLURM_JOB_ID" "$SLURMD_NODENAME" "$SLURM_CLUSTER_NAME" \
  </dev/null >/dev/null 2>&1
exit 0
