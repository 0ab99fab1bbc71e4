#!/bin/sh
# Installs what `make demo` and `make test` need and this host lacks: Debian packages, and a Python
# environment in .venv. Announces what it installs. Exits at once if nothing is missing.
#
#   packaging/install-missing.sh [PACKAGE...]  further Debian packages
#   packaging/install-missing.sh packages      for `make rpm` and `make deb`; without that environment
set -eu
cd "$(dirname "$0")/.."

packages="slurmctld slurmd slurm-client munge libslurm-dev libmunge-dev gcc libc6-dev make
python3 python3-venv lua5.1 lua5.3 lua5.4 lua-check shellcheck slurmrestd ruby $*"
[ "${1:-}" != packages ] || packages="build-essential libslurm-dev gcc libc6-dev make python3 python3-venv binutils
rpm rpmlint debhelper dpkg-dev fakeroot lintian"

missing=
for package in $packages; do
  case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true) in
    *' installed') ;;
    *) missing="$missing $package" ;;
  esac
done

if [ -n "$missing" ]; then
  echo "Installing Debian packages:$missing"
  sudo=
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
      echo "This needs root, and there is no sudo: run as root: apt-get install$missing" >&2
      exit 1
    }
    sudo=sudo
  fi
  # Keep the packages from starting their own, unconfigured munge and Slurm.
  policy=/usr/sbin/policy-rc.d
  made=
  trap '[ -z "$made" ] || $sudo rm -f "$policy"' EXIT
  trap 'exit 130' HUP INT TERM # dash runs the other one only then
  if [ ! -e "$policy" ]; then
    made=yes
    printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
    $sudo chmod 755 "$policy"
  fi
  $sudo apt-get update -qq
  # shellcheck disable=SC2086 # a list of words
  DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing \
    >.install.log 2>&1 || { tail -n 30 .install.log >&2; exit 1; }
  rm -f .install.log
fi

[ "${1:-}" != packages ] || exit 0

python=/usr/bin/python3
stamp=.venv/.installed
wanted=$(cksum <pyproject.toml)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ]; then
  echo "Installing Python packages into .venv: this project with torch 2.13.0, torchft, scikit-learn, test tools"
  echo "(a gigabyte or more to fetch when pip finds no CPU build of torch)"
  [ -x .venv/bin/python ] || $python -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
  echo "$wanted" >"$stamp"
fi
