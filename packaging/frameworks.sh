#!/bin/sh
# Tests of what users' frameworks need, in an environment of its own with exact versions of them:
# frameworks.sh [--bench | --install] DIRECTORY [arguments of pytest or the benchmark]
set -eu
task=tests
case $1 in --bench | --install) task=${1#--} && shift ;; esac
directory=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -x "$directory/bin/python" ]; then
  echo "Installing torch, lightning, transformers, accelerate into $directory (a gigabyte or more)"
  python3 -m venv "$directory"
fi
"$directory/bin/pip" install --quiet --disable-pip-version-check -r "$here/packaging/frameworks.txt"
[ "$task" != install ] || exit 0
cd "$here"
export PYTHONPATH="$here"
[ "$task" = tests ] || exec "$directory/bin/python" benchmarks/frameworks.py "$@"
exec "$directory/bin/python" -m pytest -m frameworks tests/frameworks "$@"
