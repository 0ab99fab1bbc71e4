#!/bin/sh
# Tests of what users' frameworks need, in an environment of its own with exact versions of them:
# [VERSIONS='torch transformers==4.57.6'] frameworks.sh [--install] DIRECTORY [arguments of pytest]
# VERSIONS replaces some of those versions: the newest of a library, or the one that is named.
# LIST=programs takes packaging/programs.txt instead, for the programs that users know.
set -eu
is_install=
[ "$1" != --install ] || { is_install=yes && shift; }
directory=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -x "$directory/bin/python" ]; then
  echo "Installing torch and ${LIST:-frameworks} into $directory (a gigabyte or more)"
  python3 -m venv "$directory"
fi
"$directory/bin/pip" install --quiet --disable-pip-version-check -r "$here/packaging/${LIST:-frameworks}.txt"
[ "${LIST-}" != programs ] || "$directory/bin/pip" install --quiet --disable-pip-version-check --no-deps \
  -r "$here/packaging/programs-alone.txt"
# shellcheck disable=SC2086 # a list of words
[ -z "${VERSIONS-}" ] || "$directory/bin/pip" install --quiet --disable-pip-version-check --upgrade $VERSIONS
[ -z "$is_install" ] || exit 0
cd "$here"
export PYTHONPATH="$here"
exec "$directory/bin/python" -m pytest --again -m frameworks tests/frameworks "$@"
