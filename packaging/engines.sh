#!/bin/sh
# Tests of the programs that live in pools and gangs, in an environment of its own with exact versions:
# engines.sh [--install] DIRECTORY [arguments of pytest]
set -eu
is_install=
[ "$1" != --install ] || { is_install=yes && shift; }
directory=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -x "$directory/bin/python" ]; then
  echo "Installing Optuna, Dask, Ray, Spark, mpi4py, TensorFlow, JAX, torch and JupyterLab into $directory (four gigabytes)"
  /usr/bin/python3 -m venv "$directory" # as .venv: the Python of Debian, which an image of it has too
fi
# Once for each state of the list: these are many packages to look through.
wanted=$(cksum <"$here/packaging/engines.txt")
if [ "$(cat "$directory/.installed" 2>/dev/null || true)" != "$wanted" ]; then
  "$directory/bin/pip" install --quiet --disable-pip-version-check -r "$here/packaging/engines.txt"
  echo "$wanted" >"$directory/.installed"
fi
[ -z "$is_install" ] || exit 0
cd "$here"
export PYTHONPATH="$here"
# One at a time: beside another, Ray's start runs out of its own time on two cores.
exec "$directory/bin/python" -m pytest --again -m engines tests/engines "$@"
