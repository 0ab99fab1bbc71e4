#!/bin/sh
# What a plugin for the Slurm of this host alone depends on, in Debian's words: any 22.05 of libslurm38.
set -eu
release=$(sed -n 's/^#define SLURM_VERSION_NUMBER *0x\(..\)\(..\).*/0x\1 0x\2/p' /usr/include/slurm/slurm_version.h)
# shellcheck disable=SC2086 # two numbers
set -- $release
library=$(find /usr/lib -name libslurm.so | head -n 1)
# Debian's libslurm38 and the like, or slurm-smd of SchedMD's packages.
package=$(dpkg-query -S "$(realpath "$library")" | cut -d: -f1)
printf '%s (>= %d.%02d), %s (<< %d.%02d~)\n' \
  "$package" "$1" "$2" "$package" "$1" "$(($2 + 1))"
