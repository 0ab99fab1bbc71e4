#!/bin/sh
# Pins what the packages carry, as Python 3.9 resolves the lower bounds of pyproject.toml, with the
# digests of the files: packaging/vendor.txt. Needs the network; run when a dependency changes.
set -eu
cd "$(dirname "$0")/.."

[ -x build/tools/bin/python ] || /usr/bin/python3 -m venv build/tools
build/tools/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.5'
# PyYAML is not pure Python, and ClusterShell reads only files of node groups with it, which nobody
# here asks for.
build/tools/bin/uv pip compile pyproject.toml --extra package --python-version 3.9 \
  --no-emit-package pyyaml --generate-hashes --no-header --no-annotate \
  --quiet --upgrade --output-file packaging/vendor.txt
