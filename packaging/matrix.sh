#!/bin/sh
# Runs the plugin, Lua, contract, promise and submit tests and the demo on Slurm versions other than this
# host's: those of other Debian and Ubuntu releases, each in its own root below build/roots and its own
# namespaces, with this host's Python, a copy of this tree and the plugin as it was built here: one
# binary for all. The roots are kept for the next run, and build/matrix: what each Slurm answered
# (tests/capture.py), what the tests printed and the demo's report. The tests of all releases run side
# by side, since they mostly wait; the demos one after another, since they need the processors.
#
#   packaging/matrix.sh [--if-possible] [pytest arguments]
#   packaging/matrix.sh --make RELEASE PACKAGE...    no more than a root, with these packages
#
# --if-possible: a host that cannot run this says why, and exits with 0 instead of 69.
# MATRIX_RELEASES and MATRIX_TESTS replace the defaults below; MATRIX_DEMO= leaves out the demo.
# MATRIX_MIRROR is where the releases come from, by default apt's Debian mirror and, for those that
# are called ubuntu-NAME, the mirror that debootstrap knows. In the root of a release that is called
# source-NAME, Slurm is built once from SLURM_SOURCE, a tar ball:
#
#   make test-matrix MATRIX_RELEASES=source-25.05.8 SLURM_SOURCE=slurm-25.05.8.tar.bz2
set -eu
cd "$(dirname "$0")/.."

self=$PWD/packaging/matrix.sh
releases=${MATRIX_RELEASES:-trixie testing} # Slurm 24.11, and Debian's newest
tests=${MATRIX_TESTS:-tests/slurm_wire tests/spank tests/lua tests/contract tests/promises \
  tests/selfservice/test_submit_slurm.py}
demo=${MATRIX_DEMO-yes}
plugin=build/spank
kept=build/matrix
# python3 for the libraries that this host's Python needs in the root
packages="slurmctld slurmd slurm-client slurmrestd munge libslurm-dev libmunge-dev gcc libc6-dev make python3
lua5.1 procps iproute2"
source_packages="munge libmunge-dev gcc libc6-dev make python3 lua5.1 procps iproute2 bzip2 pkgconf
liblua5.4-dev libjson-c-dev libhttp-parser-dev"
source_suite=trixie
build_limit_s=3600
test_limit_s=5400
demo_limit_s=600

# Not a test failure: this host cannot run the tests (EX_UNAVAILABLE).
cannot() {
  [ -z "$if_possible" ] || {
    echo "make test-matrix: skipped: $1"
    exit 0
  }
  echo "make test-matrix: $1" >&2
  exit 69
}

check_host() {
  [ "$(id -u)" = 0 ] || cannot "needs root: it mounts, and enters other root file systems"
  for program in unshare timeout chroot tar; do
    command -v "$program" >/dev/null || cannot "needs $program"
  done
  unshare --mount --pid --net --uts --ipc --fork true 2>/dev/null ||
    cannot "may not make namespaces here; in a container, run that one privileged"
  [ -x .venv/bin/python ] || cannot "there is no environment in .venv; make setup"
}

# Runs "$self $@" as process 1 of new namespaces: whatever it starts or mounts ends with it. In a
# subshell, whose process it becomes, and the leader of a group of its own.
in_namespaces() {
  limit_s=$1 options=$2
  shift 2
  # shellcheck disable=SC2086 # a list of options
  exec setsid timeout --foreground --signal=KILL "$limit_s" \
    unshare --mount --pid $options --fork --kill-child=KILL sh "$self" "$@"
}

find_mirror() {
  case $1 in
    ubuntu-*) sed -n 's/^\s*default_mirror \(.*archive.*\)/\1/p' "$(script_of "$1")" && return ;;
  esac
  apt-get indextargets --format "\$(LABEL) \$(REPO_URI)" 'Created-By: Packages' |
    sed -n 's/^Debian //p' | head -n 1
}

# The scripts for these two work for every release, even those unknown to this debootstrap.
script_of() {
  case $1 in
    ubuntu-*) echo /usr/share/debootstrap/scripts/gutsy ;;
    *) echo /usr/share/debootstrap/scripts/sid ;;
  esac
}

# Waits for one that in_namespaces became.
ends_well() {
  running="$running $1"
  rc=0
  wait "$1" || rc=$?
  left=
  for leader in $running; do
    [ "$leader" = "$1" ] || left="$left $leader"
  done
  running=$left
  return "$rc"
}

# shellcheck disable=SC2317 # called by a trap
end_all() {
  for leader in $running; do
    kill -s KILL -- "-$leader" 2>/dev/null || : # dash takes no -KILL here
  done
}

make_root() {
  release=$1 root=build/roots/$1
  needed=$packages
  case $release in source-*) needed=$source_packages ;; esac
  wanted=$(echo "$release $needed" | cksum)
  [ "$(cat "$root/.made" 2>/dev/null || true)" != "$wanted" ] || return 0
  command -v debootstrap >/dev/null || cannot "needs debootstrap: apt-get install debootstrap"
  mirror=${MATRIX_MIRROR:-$(find_mirror "$release")}
  [ -n "$mirror" ] || cannot "no mirror of $release is known here; set MATRIX_MIRROR"
  case $release in
    source-*) [ -f "${SLURM_SOURCE:-}" ] || cannot "$release: set SLURM_SOURCE to Slurm's tar ball" ;;
  esac
  echo "Making $root: $release from $mirror"
  rm -rf "$root"
  mkdir -p "$root"
  export MATRIX_PACKAGES="$needed"
  in_namespaces "$build_limit_s" "" --fill "$release" "$root" "$mirror" >"$root.log" 2>&1 &
  ends_well $! || {
    tail -n 20 "$root.log" >&2
    cannot "$root could not be made; see $root.log"
  }
  echo "$wanted" >"$root/.made"
}

fill_root() {
  release=$1 root=$2 mirror=$3
  parts=main suite=${release#ubuntu-}
  [ "$suite" = "$release" ] || parts=main,universe
  [ "${release#source-}" = "$release" ] || suite=$source_suite
  debootstrap --variant=minbase --components="$parts" "$suite" "$root" "$mirror" \
    "$(script_of "$release")"
  printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # starts no daemons
  chmod 755 "$root/usr/sbin/policy-rc.d"
  cp /etc/resolv.conf "$root/etc"
  proxy=
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  {
    echo 'Acquire::Check-Valid-Until "false";' # the mirror may be a copy of an earlier day
    [ -z "$proxy" ] || echo "Acquire::http::Proxy \"$proxy\";"
  } >"$root/etc/apt/apt.conf.d/90matrix"
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  export DEBIAN_FRONTEND=noninteractive
  chroot "$root" apt-get update -qq
  # shellcheck disable=SC2086 # a list of words
  chroot "$root" apt-get install -y -qq --no-install-recommends $MATRIX_PACKAGES
  chroot "$root" apt-get clean
  case $release in source-*) build_slurm "$root" ;; esac
}

# In the paths of Debian's packages, and for several slurmd on a host, as Debian builds it.
build_slurm() {
  root=$1 source=usr/src/slurm
  mkdir -p "$root/$source"
  tar -xf "$SLURM_SOURCE" --strip-components=1 -C "$root/$source"
  chroot "$root" nice -n 15 sh -ec "cd /$source
    ./configure --prefix=/usr --sysconfdir=/etc/slurm --with-munge --enable-multiple-slurmd \
      --enable-slurmrestd --disable-static --disable-dependency-tracking --disable-debug
    make -s -j$(nproc)
    make -s install
    ldconfig"
  rm -rf "${root:?}/$source"
}

# A release has its own Python, for which torch and the rest would have to be installed. This host's
# works there too, unless the C library it was built for is newer than the root's.
lend_python() {
  root=$1
  python=$(readlink -f .venv/bin/python)
  library=$(.venv/bin/python -c '
import sys, sysconfig
print(sysconfig.get_path("stdlib") if sys.base_prefix == "/usr" else sys.base_prefix)')
  mkdir -p "$root$library"
  mount --bind "$library" "$root$library"
  if [ ! -e "$root$python" ]; then
    mkdir -p "$(dirname "$root$python")"
    : >"$root$python"
  fi
  mount --bind "$python" "$root$python"
  mount --bind "$python" "$root$(chroot "$root" readlink -f /usr/bin/python3)"
  chroot "$root" "$python" -c '' || cannot "$python of this host does not run in $root"
}

# At the same path, which many files in .venv contain. What tests write there ends with the mount.
lend_tree() {
  root=$1
  mkdir -p "$root$PWD"
  mount -t tmpfs -o mode=755 tmpfs "$root$PWD"
  tar -cf - --exclude=./.git --exclude='./.venv*' --exclude=./build --exclude=./demo . |
    tar -C "$root$PWD" -xf -
  lend .venv ro
  lend "$plugin" ro # so that nothing in there can build it anew
  lend "$kept" rw
}

lend() {
  mkdir -p "$root$PWD/$1"
  mount --bind "$1" "$root$PWD/$1"
  mount -o "remount,bind,$2" "$root$PWD/$1"
}

# Runs a program of the tree's in the root.
inside() {
  chroot "$root" env -i -C "$PWD" HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$PWD:$PWD/tests" \
    MALLEABLE_CAPTURED="$PWD/$kept/captured" .venv/bin/python "$@"
}

enter_root() {
  root=$1
  mount --bind "$root" "$root" # what makes name spaces of its own in there needs a mount as its root
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  lend_python "$root"
  lend_tree "$root"
  # slurmctld looks up the host's name, and with nothing but loopback finds no address for it.
  hostname matrix
  printf '127.0.0.1 localhost\n10.99.0.1 matrix\n' >"$root/etc/hosts"
  chroot "$root" ip link set lo up
  chroot "$root" ip address add 10.99.0.1/32 dev lo
}

# This shell stays process 1, so that it reaps what daemons leave behind.
test_root() {
  status=0
  rm -rf "${kept:?}/captured"
  inside -m capture "$kept/captured" || status=1
  # shellcheck disable=SC2086 # a list of words
  inside -m pytest -p no:cacheprovider -q -rfEs $tests "$@" || status=1
  return "$status"
}

if_possible=
only_make=
case ${1:-} in
  --if-possible)
    if_possible=yes
    shift
    ;;
  --make)
    only_make=$2
    shift 2
    packages=$*
    ;;
  --fill)
    shift
    fill_root "$@"
    exit
    ;;
  --test | --demo)
    stage=$1
    shift
    kept=$kept/${1##*/}
    enter_root "$1"
    shift
    if [ "$stage" = --test ]; then
      test_root "$@"
    else
      inside examples/demo/run.py --out "$kept/demo"
    fi
    exit
    ;;
esac

running=
trap end_all EXIT
trap 'exit 130' INT TERM
check_host
[ -z "$only_make" ] || {
  make_root "$only_make"
  exit
}
for release in $releases; do
  make_root "$release"
done
[ -e "$plugin/malleable.so" ] || cannot "the plugin is not built; make plugin"

outcomes=
status=0
began=$(date +%s)
note() { # RELEASE WHAT RC
  outcome=passed
  [ "$3" = 0 ] || outcome=FAILED status=1
  version=$(chroot "build/roots/$1" slurmctld -V)
  line="$version ($1): $2 $outcome after $((($(date +%s) - began + 59) / 60)) min"
  echo "== $line"
  outcomes="$outcomes
$line"
}

started=
for release in $releases; do
  mkdir -p "$kept/$release"
  echo "== tests on $release: $kept/$release/tests.log"
  in_namespaces "$test_limit_s" "--net --uts --ipc" --test "build/roots/$release" "$@" \
    >"$kept/$release/tests.log" 2>&1 &
  running="$running $!"
  started="$started $release=$!"
done
for pair in $started; do
  rc=0
  ends_well "${pair#*=}" || rc=$?
  cat "$kept/${pair%=*}/tests.log"
  note "${pair%=*}" tests "$rc"
done
for release in ${demo:+$releases}; do
  in_namespaces "$demo_limit_s" "--net --uts --ipc" --demo "build/roots/$release" &
  rc=0
  ends_well $! || rc=$?
  note "$release" demo "$rc"
done
echo "== all of it:$outcomes"
exit "$status"
