#!/bin/sh
# Prolog of slurm-malleable: a private scratch directory for each fragment.
#
# Runs as root before every job on every node, so: other people's jobs leave at the first line, no
# Slurm command is called (that can hang a node), a deadline bounds everything, and the exit code
# is always 0 (any other drains the node). Scratch lies below a directory that only root writes.
[ -n "$SPANK_MALLEABLE" ] || exit 0

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
[ "$1" = work ] || { timeout -k 1 5 "$0" work </dev/null; exit 0; }

scratch_root=/run/slurm-malleable/scratch
conf=${0%/*}/hooks.conf # written by the admin; sets scratch_root
# shellcheck source=/dev/null
[ -r "$conf" ] && . "$conf"

case $SLURM_JOB_ID in '' | *[!0-9]*) exit 0 ;; esac
case $SLURM_JOB_UID in '' | *[!0-9]*) exit 0 ;; esac

umask 077
mkdir -p "$scratch_root" && chmod 711 "$scratch_root" || exit 0
dir=$scratch_root/${SLURMD_NODENAME:-node}.$SLURM_JOB_ID
if mkdir "$dir" 2>/dev/null; then
  chown -h "$SLURM_JOB_UID" "$dir"
fi
exit 0
