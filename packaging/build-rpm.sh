#!/bin/sh
# `make rpm`: four RPMs in dist/ and the source RPM in dist/source, where `dnf install dist/*.rpm` does
# not meet it; looked over by rpmlint.
#
#   packaging/build-rpm.sh [TARGET] [rpmbuild options, for example --with slurm_strict]
#
# In the environment, for tests: VERSION replaces that of the package; FAST=1 hardly compresses, and
# leaves rpmlint out.
set -eu
cd "$(dirname "$0")/.."
target=${1:-dist}
[ $# = 0 ] || shift
top=$PWD/build/rpm
name=$(packaging/source.sh build/rpm/SOURCES)
rm -rf "$top/RPMS" "$top/SRPMS" "$top/BUILD" "$top/BUILDROOT"
# --nodeps: on Debian the tools are not RPMs; install-missing.sh has seen to them.
rpmbuild -ba --nodeps --quiet --define "_topdir $top" --define "dist %{nil}" \
  ${FAST:+--define "_binary_payload w1.gzdio" --define "_source_payload w1.gzdio"} "$@" \
  "build/rpm/SOURCES/$name/slurm-malleable-slurm.spec" >build/rpm/log 2>&1 || { tail -n 40 build/rpm/log >&2; exit 1; }
mkdir -p "$target/source"
find "$top/RPMS" -name '*.rpm' -exec cp {} "$target" \; -printf "$target/%f\n" | sort
cp "$top"/SRPMS/*.rpm "$target/source"
[ -z "${FAST:-}" ] || exit 0
rpmlint --config packaging/rpmlint.toml "$top"/RPMS/*/*.rpm "$top"/SRPMS/*.rpm >build/rpm/lint 2>&1 ||
  { cat build/rpm/lint >&2; exit 1; }
! grep -E ': (E|W): ' build/rpm/lint
