epilog=/usr/libexec/slurm-malleable/epilog.sh

say_lines() {
  echo "slurm-malleable-slurm: take these out, if you put them there. Then restart slurmctld, and run"
  echo "scontrol reconfigure. Cancel malleable jobs that wait first, or they are lost:"
  echo "  slurm.conf       Epilog=$epilog; JobSubmitPlugins=lua if job_submit.lua goes as well"
  echo "  plugstack.conf   the line with malleable.so"
  echo "  job_submit.lua   the line with malleable_submit.lua (does nothing by now)"
}

# Where Slurm's configuration names our Epilog; nothing if it does not. slurm.conf is often a link to
# a shared file system; one that does not answer may well name it. scontrol knows other places, and
# while slurmctld is down nobody can tell.
find_named() {
  for place in /etc/slurm /etc/slurm-llnl /run/slurm/conf /var/spool/slurmd/conf-cache \
    /var/spool/slurm/d/conf-cache "$(dirname "${SLURM_CONF:-/etc/slurm/slurm.conf}")"; do
    code=0
    timeout -k 1 20 grep -RqsF -D skip --include='*.conf' "$epilog" "$place" || code=$?
    case $code in 0 | 124 | 137) echo "$place" && return ;; esac
  done
  said=$(timeout -k 1 20 scontrol show config 2>&1) || said="$said; it ended with $?"
  case $said in
    *"$epilog"*) echo "slurm.conf" ;;
    *"ended with 124" | *"ended with 137" | *"contact slurm controller"*)
      echo "slurm.conf, perhaps, as slurmctld does not answer" ;;
  esac
}

# Slurm drains every node whose Epilog is missing.
keep_epilog_if_named() {
  place=$(find_named)
  [ -n "$place" ] || return 0
  mkdir -p "$(dirname "$epilog")"
  printf '#!/bin/sh\n# slurm-malleable is gone; take the Epilog out of %s, then remove this.\nexit 0\n' \
    "$place" >"$epilog"
  chmod 755 "$epilog"
  echo "$epilog still stands in $place: one that does nothing stays there, or nodes would drain."
}
