"""A copy of this host's root file system, or of another, that ends with the test.

It is an overlay in separate namespaces. Installed files are in a separate layer, so `changed` lists
every file that an installation left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

TREE = Path(__file__).resolve().parents[2]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Run as process 1 of the namespaces. This host's tree is hidden: no file may come from it.
SETUP = r"""
set -eu
scratch=$1 tree=$2 venv=$3 below=$4
mount -t tmpfs -o mode=755 tmpfs "$scratch"
mkdir "$scratch/changed" "$scratch/work" "$scratch/root"
root=$scratch/root
layers=lowerdir=$below,upperdir=$scratch/changed,workdir=$scratch/work
mount -t overlay -o "$layers" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
case $below$venv in
  /"$tree"/*)
    mkdir "$scratch/venv"
    mount --bind "$venv" "$scratch/venv" ;;
esac
[ "$below" != / ] || mount -t tmpfs -o mode=755 tmpfs "$root$tree"
[ ! -d "$scratch/venv" ] || { mkdir -p "$root$venv" && mount --bind "$scratch/venv" "$root$venv"; }
hostname packages
printf '127.0.0.1 localhost\n10.99.0.1 packages\n' >"$root/run/hosts"
[ -e "$root/etc/hosts" ] || : >"$root/etc/hosts"
mount --bind "$root/run/hosts" "$root/etc/hosts"
ip link set lo up
ip address add 10.99.0.1/32 dev lo
touch "$scratch/ready"
while :; do sleep 1; done
"""


@dataclass(frozen=True)
class Root:
    """The namespaces of process `pid`. `path` is their root as seen from inside them."""

    pid: int
    scratch: Path

    def run(
        self,
        argv: Sequence[str],
        env: Optional[Mapping[str, str]] = None,
        check: bool = True,
        timeout_s: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in there, as root, with its own environment. Return its output as text."""
        done = subprocess.run(
            self._enter(argv, env or {}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        said = f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert not check or done.returncode == 0, said
        return done

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a command in there without waiting for its end."""
        pipe = subprocess.PIPE
        return subprocess.Popen(self._enter(argv, env), stdout=pipe, stderr=pipe, text=True)

    def _enter(self, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        words = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", **env}
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc"]
        inside = ["chroot", f"{self.scratch}/root", "env", "-i", "-C", "/"]
        return [*enter, *inside, *(f"{name}={text}" for name, text in words.items()), *argv]

    def put(self, source: Path, target: str) -> None:
        """Copy a file or a directory to /tmp or /run of the root."""
        packed = subprocess.run(
            ["tar", "-C", str(source.parent), "--exclude=__pycache__", "-cf", "-", source.name],
            capture_output=True,
            timeout=60,
            check=True,
        )
        self.run(["mkdir", "-p", target])
        subprocess.run(
            self._enter(["tar", "-C", target, "--no-same-owner", "-xf", "-"], {}),
            input=packed.stdout,
            timeout=60,
            check=True,
        )

    def write(self, path: str, text: str, mode: str = "644") -> None:
        """Write a file in there."""
        shell = ["sh", "-c", 'cat >"$1" && chmod "$2" "$1"', "sh", path, mode]
        subprocess.run(self._enter(shell, {}), input=text, text=True, timeout=20, check=True)

    def changed(self) -> set[str]:
        """The files that differ from the host's: made, changed or removed. Directories too, if
        the host does not have them."""
        layer = f"/proc/{self.pid}/root{self.scratch}/changed"
        paths = set()
        for where, directories, files in os.walk(layer):
            below = where[len(layer) :]
            paths |= {f"{below}/{name}" for name in files}
            new = [name for name in directories if not os.path.isdir(f"{below}/{name}")]
            paths |= {f"{below}/{name}" for name in new}
        return paths


@contextmanager
def overlay(scratch: Path, below: Path = Path("/")) -> Iterator[Root]:
    """A root like the root `below`. It ends, with all its processes, when this context does.

    Raises OSError if this host does not allow it.
    """
    argv = ["unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork"]
    argv += ["--kill-child=KILL", "sh", "-c", SETUP, "sh"]
    argv += [str(scratch), str(TREE), sys.prefix, str(below)]
    holder = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield Root(_first_child(holder, scratch), scratch)
    finally:
        with suppress(ProcessLookupError):  # it could not be set up, and has said why
            os.killpg(holder.pid, signal.SIGKILL)
        holder.communicate(timeout=20)


def _first_child(holder: subprocess.Popen[str], scratch: Path) -> int:
    """The process that stands for the namespaces, once they are set up."""
    children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
    for _ in range(400):
        if holder.poll() is not None:
            raise OSError(f"no root of its own here: {holder.communicate()[1]}")
        pids = children.read_text().split()
        if pids and Path(f"/proc/{pids[0]}/root{scratch}/ready").exists():
            return int(pids[0])
        time.sleep(0.05)
    raise OSError("the root was not ready after 20 s")
