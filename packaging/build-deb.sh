#!/bin/sh
# `make deb`: four debs in dist/.
#
#   packaging/build-deb.sh [TARGET]
#
# In the environment: SLURM_STRICT=1; DEBFULLNAME and DEBEMAIL (whose package this is); for tests
# VERSION (instead of that of the package) and FAST=1 (hardly compresses, leaves lintian out).
set -eu
cd "$(dirname "$0")/.."
target=${1:-dist}
mkdir -p "$target"
name=$(packaging/source.sh build/deb)
(cd "build/deb/$name" && dpkg-buildpackage --build=binary --no-sign) >build/deb/log 2>&1 ||
  { tail -n 40 build/deb/log >&2; exit 1; }
find build/deb -maxdepth 1 -name '*.deb' ! -name '*-dbgsym_*' -exec cp {} "$target" \; -printf "$target/%f\n" | sort
[ -n "${FAST:-}" ] || lintian --allow-root --fail-on error,warning build/deb/*.deb
