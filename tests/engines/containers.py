"""Container runtimes of this host, and an image made without a registry.

The image is Debian's smallest root with its Python. Other software of a training is mounted, as
sites do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
MUNGE = "libmunge.so.2"
FILES_MOST = 1024


@dataclass(frozen=True)
class Runtime:
    """`words`: the command line up to the program, from the image and the mounts."""

    name: str
    words: Callable[[Path, Sequence[Path]], list[str]]


def charliecloud(image: Path, mounted: Sequence[Path]) -> list[str]:
    binds = [f"--bind={path}:{path}" for path in mounted]
    return ["ch-run", *binds, '--cd="$PWD"', str(image), "--"]


def podman(image: Path, mounted: Sequence[Path], *more: str) -> list[str]:
    """A host without CAP_SYS_RESOURCE can set this limit."""
    binds = [f"--volume={path}:{path}" for path in mounted]
    limits = [f"--ulimit=nofile={FILES_MOST}:{FILES_MOST}", "--ulimit=nproc=4096:4096"]
    shared = ["--network=host", "--env-host", *more]
    start = ["podman", "--runtime=runc", "--cgroup-manager=cgroupfs", "run", "--rm", *limits]
    return [*start, *shared, *binds, '--workdir="$PWD"', "--rootfs", str(image)]


def podman_with_our_processes(image: Path, mounted: Sequence[Path]) -> list[str]:
    return podman(image, mounted, "--pid=host", "--ipc=host")


RUNTIMES = (Runtime("charliecloud", charliecloud), Runtime("podman", podman_with_our_processes))
PODMAN_ALONE = Runtime("podman, process ids of its own", podman)


def usable(runtime: Runtime, image: Path) -> None:
    """Skip the test if this host does not run containers in this way."""
    words = [word.replace('"$PWD"', "/") for word in runtime.words(image, [])]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    env = {**os.environ, "USER": os.environ.get("USER", "root")}
    done = subprocess.run(
        [*words, "python3", "-V"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        pytest.skip(f"{runtime.name} is refused here: {done.stderr.strip()[-200:]}")


def make_image() -> Path:
    """Make a root of this host's Debian, kept between runs. Skip the test if there is no
    such root.
    """
    release = _debian()
    root = BUILD / f"image-{release}"
    if root.exists():
        return root
    if os.geteuid() or shutil.which("debootstrap") is None:
        pytest.skip("making an image needs root and debootstrap")
    draft = root.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    words = ["unshare", "--mount", "debootstrap", "--variant=minbase", "--include=python3"]
    done = subprocess.run(
        [*words, release, str(draft), MIRROR],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"debootstrap: {done.stdout.strip()[-300:]}")
    draft.rename(root)
    return root


def _debian() -> str:
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    pytest.skip("this host is not a Debian, so its Python would not be that of the image")


def python_of_the_tests() -> list[Path]:
    """The parts of this Python that are not in the image."""
    return [Path(sys.prefix)]


def slurms_commands() -> list[Path]:
    """squeue and scontrol with their libraries, to be mounted at their own paths."""
    libraries = Path("/usr/lib").glob(f"*/{MUNGE}*")
    plugins = Path("/usr/lib").glob("*/slurm-wlm")
    commands = [shutil.which(name) for name in ("squeue", "scontrol")]
    return [*(Path(path) for path in commands if path), *plugins, *libraries]


def prepare(image: Path, mounted: Sequence[Path]) -> None:
    """Make the mount points in the image."""
    for path in mounted:
        place = image / path.relative_to("/")
        if place.exists() or place.is_symlink():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir() if path.is_dir() else place.touch()
