#!/bin/sh
# Lays out what the packages contain; the RPMs and the debs share it.
#
#   packaging/lay-out.sh CARRIED DESTDIR
#
# CARRIED is what packaging/vendor.py made. PLUGIN_DIR, PYTHON (that will run the command) and
# STRICT (for the plugin) come from the environment. Enables nothing.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$2"
carried=$1 root=$(cd "$2" && pwd)
umask 022

code=$root/usr/lib/slurm-malleable
share=$root/usr/share/slurm-malleable
doc=$root/usr/share/doc/slurm-malleable
lib=$root/usr/lib

copy_tree() { # FROM TO, without what Python leaves
  mkdir -p "$2"
  tar -C "$1" --exclude=__pycache__ -cf - . | tar -C "$2" --no-same-owner -xf -
  find "$2" -type f ! -name '*.sh' -exec chmod 644 {} +
}

put() { # MODE TO FILE...: those that are there
  mode=$1 to=$2
  shift 2
  for file in "$@"; do
    [ ! -f "$file" ] || install -D -m "$mode" "$file" "$to/${file##*/}"
  done
}

command_and_code() {
  install -d "$root/usr/bin"
  sed "1s|/usr/bin/python3|${PYTHON:-/usr/bin/python3}|" packaging/malleable >"$root/usr/bin/malleable"
  chmod 755 "$root/usr/bin/malleable"
  copy_tree slurm_hooks "$code/slurm_hooks"
  copy_tree "$carried/vendor" "$code/vendor"
  # What is a script only where pip would install it.
  find "$code/vendor" -name '*.py' -exec sed -i '1s|^#!.*||' {} +
}

# The pages lie elsewhere than in the source.
name_documents() { # FILE...
  sed -i -E "s#(\.\./)*\bdocs/((admins|users|developers)/)#/usr/share/doc/slurm-malleable/\2#g" "$@"
}

settings() {
  install -d "$root/etc/slurm-malleable"
  sed 's|^operators = .*|operators = ["root", "slurm", "slurm-malleable"]|' etc/malleable.toml \
    >"$root/etc/slurm-malleable/malleable.toml"
  chmod 644 "$root/etc/slurm-malleable/malleable.toml"
  name_documents "$root/etc/slurm-malleable/malleable.toml"
}

units() {
  for unit in etc/systemd/*; do
    install -d "$lib/systemd/system"
    sed 's|@BINDIR@|/usr/bin|' "$unit" >"$lib/systemd/system/${unit##*/}"
  done
  put 644 "$lib/systemd/system-preset" etc/presets/*
  put 644 "$lib/sysusers.d" etc/sysusers/*
  put 644 "$lib/tmpfiles.d" etc/tmpfiles/*
  install -d "$share/cron"
  sed 's|@BINDIR@|/usr/bin|' etc/cron/slurm-malleable >"$share/cron/slurm-malleable"
  copy_tree etc/dashboards "$share/dashboards"
  name_documents "$lib"/systemd/system/* "$lib"/sysusers.d/* "$share/cron/slurm-malleable" "$share"/dashboards/*
  copy_tree etc/ondemand "$share/ondemand"
  copy_tree etc/ondemand-notebook "$share/ondemand-notebook"
  copy_tree etc/jupyterhub "$share/jupyterhub"
  install -d "$root/usr/share/bash-completion/completions"
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$code:$code/vendor" "${BUILD_PYTHON:-/usr/bin/python3}" \
    packaging/reference.py "$root/usr/share/bash-completion/completions/malleable" >/dev/null
  chmod 644 "$root/usr/share/bash-completion/completions/malleable"
}

# Links to files that packages leave out. packaging/site/hooks.py says the same of pages for a browser.
here=' in the source'
of_the_source_alone="
s#\[[^]]*\]\((\.\./)*(developers/)?nightly[^)]*\)#docs/developers/nightly.md$here#g
s#\[(the )?lab( note)?\]\((\.\./)*lab/([^)\#]+)[^)]*\)#docs/lab/\4$here#g
s#\[docs/lab/[^]]*\]\((\.\./)*lab/([^)\#]+)[^)]*\)#docs/lab/\2$here#g
s#\[([^]]+)\]\((\.\./)*lab/([^)\#]*\1[^)\#]*)[^)]*\)#docs/lab/\3$here#g
s#\[([^]]*)\]\((\.\./)*lab/([^)\#]+)[^)]*\)#\1 (docs/lab/\3$here)#g
s#\[([^]]*)\]\((\.\./\.\./|(\.\./)?lab/|examples|etc/)[^)]*\)#\1#g"

documents() {
  copy_tree docs "$doc"
  rm -rf "$doc/man" "$doc/lab" "$doc/developers/nightly.md"
  put 644 "$doc" README.md CHANGELOG.md LICENSE
  sed -i 's|](docs/|](|g' "$doc/README.md" "$doc/CHANGELOG.md" # they lie beside them here
  find "$doc" -name '*.md' -exec sed -i -E "$of_the_source_alone" {} +
  copy_tree "$carried/html" "$doc/html"
  put 644 "$doc" "$carried/third-party.md" "$carried/sbom.cdx.json"
  for page in docs/man/*.[158]; do
    put 644 "$root/usr/share/man/man${page##*.}" "$page"
  done
  name_documents "$root"/usr/share/man/man*/*
}

slurm_side() {
  # shellcheck disable=SC2086 # a word or none
  make -s -C plugins/spank BUILD_DIR="$PWD/build/spank-package" PLUGIN_DIR="$PLUGIN_DIR" \
    DESTDIR="$root" ${STRICT:+STRICT=$STRICT} all install
  put 644 "$share/lua" plugins/lua/*.lua
  put 755 "$root/usr/libexec/slurm-malleable" slurm_hooks/hooks/epilog.sh
  put 644 "$share/preposition" slurm_hooks/hooks/preposition/*.py
  name_documents "$share"/preposition/*
}

# The directory for a job's PYTHONPATH, named by its content. The packages' scripts put it beside the
# link that Slurm's configuration names, so that older ones can stay for the jobs that use them.
client() {
  draft=$(mktemp -d)
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$code:$code/vendor" "${BUILD_PYTHON:-/usr/bin/python3}" -c '
import sys, pathlib
from slurm_hooks.protocol.jobpath import write_job_path
write_job_path(pathlib.Path(sys.argv[1]))' "$draft/jobpath"
  name=$(readlink "$draft/jobpath")
  copy_tree "$draft/$name" "$share/client/$name"
  chmod 755 "$share/client/$name/bin/malleable"
  ln -s "$name" "$share/client/current"
  rm -rf "$draft"
}

examples() {
  copy_tree examples "$share/examples"
  chmod 755 "$share/examples/digits"/*.sh
  name_documents "$share/examples/digits/README.md"
}

command_and_code
settings
units
documents
slurm_side
client
examples
