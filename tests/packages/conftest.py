"""Packages of this tree, built once in two versions, and roots to install them in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from packages.root import TREE, Root, overlay

OLDER = "0.9.0"
NEWER = "0.10.0"  # and yet before the older version in the alphabet
PARTS = ("", "-slurm", "-client", "-sandbox")
BUILD_LIMIT_S = 900
PROGRAMS = ("rpmbuild", "rpm", "dpkg-buildpackage", "dh", "unshare", "nsenter")


@dataclass(frozen=True)
class Packages:
    """Packages of a kind in two versions, each a directory with four of them."""

    kind: str  # rpm or deb
    old: Path
    new: Path

    def install(self, root: Root, version: str = "old") -> str:
        """Install or upgrade. Return the text that the administrator reads."""
        files = sorted(getattr(self, version).glob(f"*.{self.kind}"))
        target = f"/tmp/{version}"
        for path in files:
            root.put(path, target)
        paths = [f"{target}/{path.name}" for path in files]
        if self.kind == "rpm":  # on Debian the tools that they require are not RPMs
            done = root.run(["rpm", "--force-debian", "--nodeps", "-U", *paths])
        else:
            done = root.run(["dpkg", "--force-confdef", "-i", *paths])
        return done.stdout + done.stderr

    def remove(self, root: Root) -> str:
        """Remove all. Return the text that the administrator reads."""
        names = [f"slurm-malleable{part}" for part in reversed(PARTS)]
        if self.kind == "rpm":
            done = root.run(["rpm", "--force-debian", "-e", *names])
        else:
            done = root.run(["dpkg", "--remove", *names])
        return done.stdout + done.stderr

    def contents(self, root: Root) -> set[str]:
        """Every path that the installed packages own."""
        names = [f"slurm-malleable{part}" for part in PARTS]
        query = ["rpm", "-ql"] if self.kind == "rpm" else ["dpkg", "-L"]
        return set(root.run([*query, *names]).stdout.splitlines())


@pytest.fixture(scope="session", params=["rpm", "deb"])
def packages(request: pytest.FixtureRequest) -> Packages:
    """RPMs or debs of this tree. Skipped on a host that cannot build and install them."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root and {', '.join(missing) or 'nothing else'}: make test-packages")
    kind = request.param
    made = TREE / "build" / "test-packages"
    both = Packages(kind, made / f"{kind}-old", made / f"{kind}-new")
    _build(kind, both.old, {"VERSION": OLDER})
    _build(kind, both.new, {"VERSION": NEWER})
    return both


def _build(kind: str, target: Path, words: dict[str, str]) -> None:
    if os.environ.get("PACKAGES_BUILT") and any(target.glob("*")):  # by an earlier run
        return
    shutil.rmtree(target, ignore_errors=True)
    done = subprocess.run(
        [str(TREE / "packaging" / f"build-{kind}.sh"), str(target)],
        env={**os.environ, **words, "FAST": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def root(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A separate root, in which the tests of a kind follow each other."""
    try:
        with overlay(tmp_path_factory.mktemp(packages.kind)) as made:
            yield made
    except OSError as error:
        pytest.skip(str(error))
