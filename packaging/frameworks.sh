#!/bin/sh
# Tests of what users' frameworks need, in an environment of its own with exact versions of them:
# frameworks.sh [--bench] DIRECTORY [arguments of pytest or the benchmark]
set -eu
task=tests
[ "$1" = --bench ] && task=bench && shift
directory=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
[ -x "$directory/bin/python" ] || python3 -m venv "$directory"
"$directory/bin/pip" install --quiet --disable-pip-version-check -r "$here/packaging/frameworks.txt"
cd "$here"
export PYTHONPATH="$here"
[ "$task" = tests ] || exec "$directory/bin/python" benchmarks/frameworks.py "$@"
exec "$directory/bin/python" -m pytest -m frameworks tests/frameworks "$@"
