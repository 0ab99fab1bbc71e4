#!/bin/sh
# `make install`: Slurm's side, for a host without packages of it. It enables nothing. Install the
# command itself first, so that the unit can name it: pip install '.[highs]'
#   DESTDIR  the root of all paths; empty by default
#   BINDIR   where `malleable` is, since neither unit nor cron line looks at PATH
set -eu
cd "$(dirname "$0")/.."
umask 022 # users' jobs read all of it
root=${DESTDIR:-}
build=${BUILD:-build}
program=$(command -v malleable || echo /usr/local/bin/malleable)
bin=${BINDIR:-${program%/malleable}}
share=$root/usr/share/slurm-malleable
libexec=$root/usr/libexec/slurm-malleable
config=$root/etc/slurm-malleable
lib=$root/usr/lib
completions=$root/usr/share/bash-completion/completions

put() { # MODE DIRECTORY FILE...
  mode=$1 directory=$2
  shift 2
  install -d "$directory"
  install -m "$mode" "$@" "$directory"
}

put_with_bin() { # FILE TARGET
  sed "s|@BINDIR@|$bin|" "$1" | install -m 644 /dev/stdin "$2"
}

make --no-print-directory -C plugins/spank BUILD_DIR="$PWD/$build/spank" install
put 644 "$share/lua" plugins/lua/*.lua
put 644 "$share/preposition" slurm_hooks/hooks/preposition/*.py
put 755 "$libexec" slurm_hooks/hooks/epilog.sh
"${PYTHON:-.venv/bin/python}" -m slurm_hooks.cli render job-path "$share/jobpath"
for tree in dashboards jupyterhub ondemand ondemand-notebook; do
  cp -R "etc/$tree" "$share"
  chmod -R a+rX "$share/$tree"
done

put 644 "$lib/systemd/system-preset" etc/presets/*.preset
put 644 "$lib/sysusers.d" etc/sysusers/*.conf
put 644 "$lib/tmpfiles.d" etc/tmpfiles/*.conf
install -d "$lib/systemd/system" "$share/cron"
for unit in etc/systemd/*; do put_with_bin "$unit" "$lib/systemd/system/${unit##*/}"; done
put_with_bin etc/cron/slurm-malleable "$share/cron/slurm-malleable"
for page in docs/man/*; do put 644 "$root/usr/share/man/man${page##*.}" "$page"; done
put 644 "$completions" "$build/bash-completion/malleable"
install -d "$config"
if ! [ -e "$config/malleable.toml" ]; then
  put 644 "$config" etc/malleable.toml
fi

id slurm-malleable >/dev/null 2>&1 ||
  echo "note: the unit runs as slurm-malleable: systemd-sysusers && systemd-tmpfiles --create; docs/admins/packages.md"
[ -x "$bin/malleable" ] ||
  echo "note: unit and cron line run $bin/malleable, which is not here: pip install it, or make install BINDIR=DIR"
