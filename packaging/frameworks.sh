#!/bin/sh
# Tests of what users' frameworks need, in an environment of its own with exact versions of them:
# frameworks.sh DIRECTORY [pytest's arguments]
set -eu
directory=$1
shift
here=$(cd "$(dirname "$0")/.." && pwd)
[ -x "$directory/bin/python" ] || python3 -m venv "$directory"
"$directory/bin/pip" install --quiet --disable-pip-version-check -r "$here/packaging/frameworks.txt"
cd "$here"
PYTHONPATH=$here exec "$directory/bin/python" -m pytest -m frameworks tests/frameworks "$@"
