#!/bin/sh
# Runs adapter, plugin, contract and promise tests on a Slurm for which there is a pyslurm, built from
# Slurm's source, which nobody packages here:
#
#   packaging/pyslurm.sh SOURCE [pytest arguments]
#
# SOURCE is an unpacked Slurm or its tar ball; it is not changed. Slurm goes to build/slurm-RELEASE/root,
# pyslurm of the same release to build/slurm-RELEASE/venv, an environment on top of .venv. Both are
# kept for the next run. The plugin is the one of this host: one binary for all. PYSLURM names pyslurm's
# source (a tar ball, a folder) in place of what pip finds.
set -eu
cd "$(dirname "$0")/.."

tests=${PYSLURM_TESTS:-tests/slurm_wire tests/spank tests/lua tests/contract tests/promises}
needed="gcc make bzip2 pkg-config"
headers="munge.h lua.h json-c/json.h"

cannot() {
  echo "make test-pyslurm: $1" >&2
  exit 69
}

# The folder with Slurm's configure script, unpacked below build/ if need be.
unpack() {
  case $1 in
    *.tar | *.tar.*)
      mkdir -p build/slurm-source
      tar -xf "$1" -C build/slurm-source
      folder=build/slurm-source/$(tar -tf "$1" | head -n 1 | cut -d/ -f1)
      ;;
    *) folder=$1 ;;
  esac
  [ -x "$folder/configure" ] || cannot "$1 is neither Slurm's source nor its tar ball"
  (cd "$folder" && pwd)
}

check_host() {
  for program in $needed; do
    command -v "$program" >/dev/null || cannot "needs $program: apt-get install $needed"
  done
  [ -x .venv/bin/python ] || cannot "there is no environment in .venv; make setup"
  [ "$(id -u)" != 0 ] || setpriv --reuid=65534 --regid=65534 --clear-groups test -x "$PWD" ||
    cannot "tests submit as nobody, who cannot enter $PWD: use a tree that others can read"
  for header in $headers; do
    # shellcheck disable=SC2046 # a list of options
    echo "#include <$header>" | cc -E $(pkg-config --cflags lua5.4 2>/dev/null) -x c - >/dev/null 2>&1 ||
      cannot "needs $header: apt-get install libmunge-dev liblua5.4-dev libjson-c-dev"
  done
}

build_slurm() {
  source=$1 base=$2
  [ ! -e "$base/root/.made" ] || return 0
  echo "Building Slurm in $base (a quarter of an hour on two cores)"
  mkdir -p "$base/objects"
  # Several slurmd on one host, as Debian's packages allow too.
  (
    cd "$base/objects"
    nice "$source/configure" --prefix="$base/root" --sysconfdir=/etc/slurm --with-munge \
      --enable-multiple-slurmd --disable-static --disable-dependency-tracking --disable-debug
    nice make -j"$(nproc)"
    nice make install
  ) >"$base/build.log" 2>&1 || {
    tail -n 20 "$base/build.log" >&2
    cannot "Slurm could not be built; see $base/build.log"
  }
  : >"$base/root/.made"
}

build_pyslurm() {
  release=$1 base=$2
  [ ! -e "$base/venv/.made" ] || return 0
  echo "Building pyslurm for Slurm $release"
  .venv/bin/python -m venv "$base/venv"
  site=$("$base/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  below=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$below')" >"$site/below.pth"
  for program in .venv/bin/*; do # torchrun above all, which tests look for beside their Python
    [ -e "$base/venv/bin/${program##*/}" ] || ln -s "$PWD/$program" "$base/venv/bin"
  done
  SLURM_INCLUDE_DIR=$base/root/include SLURM_LIB_DIR=$base/root/lib PYSLURM_BUILD_JOBS=$(nproc) \
    nice "$base/venv/bin/pip" install "${PYSLURM:-pyslurm==$release.*}" >"$base/pyslurm.log" 2>&1 || {
    tail -n 20 "$base/pyslurm.log" >&2
    cannot "pyslurm could not be built; see $base/pyslurm.log"
  }
  : >"$base/venv/.made"
}

# Jobs that say PATH=/usr/bin find the Slurm under test too: in this mount namespace, its commands lie
# over this host's.
cover_host() {
  for program in "$1"/root/bin/*; do
    covered=/usr/bin/${program##*/}
    [ ! -e "$covered" ] || mount --bind "$program" "$covered"
  done
}

run_tests() {
  version=$1 base=$2
  shift 2
  PATH=$base/root/bin:$base/root/sbin:$PATH
  PYTHONPATH="$PWD:$PWD/tests" # this tree's modules, whichever tree .venv was made for
  export PATH PYTHONPATH
  echo "== Slurm $version, pyslurm $("$base/venv/bin/python" -c 'from importlib.metadata import version
print(version("pyslurm"))')"
  # shellcheck disable=SC2086 # a list of words
  exec "$base/venv/bin/python" -m pytest -q -rfEs $tests "$@"
}

if [ "${1:-}" = --test ]; then
  shift
  cover_host "$2"
  run_tests "$@"
fi
[ -n "${1:-}" ] || cannot "give Slurm's source: make test-pyslurm SLURM_SOURCE=slurm-25.11.8.tar.bz2
(from SchedMD's site; pip has pyslurm for few releases, so take one that it has)"
check_host
source=$(unpack "$1")
shift
version=$(sed -n 's/^ *Version:[[:space:]]*//p' "$source/META")
release=${version%.*}
base=$PWD/build/slurm-$release
build_slurm "$source" "$base"
build_pyslurm "$release" "$base"
[ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null ||
  exec unshare --mount sh packaging/pyslurm.sh --test "$version" "$base" "$@"
run_tests "$version" "$base" "$@"
