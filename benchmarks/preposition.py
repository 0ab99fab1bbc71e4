"""`import torch` from a directory as slow as a loaded file system, beside the copy on the node.

Run: python benchmarks/preposition.py [--delay-ms 0 1]; the last line is one JSON object. The hook
that lays the copy runs as the caller, on a tar. The directory is slowed with LD_PRELOAD
(slow_metadata.c): each open and stat below it takes so much longer; reads are as fast as the disk,
and what the dynamic linker opens is not slowed, so a real file system is worse. Cold: the pages of
the files are dropped from memory first; the names stay there. Both lie on one disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_hooks.hooks import preposition

PACKAGES = """
torch torchgen functorch numpy numpy.libs sympy mpmath networkx jinja2 markupsafe fsspec filelock
typing_extensions.py setuptools _distutils_hack
""".split()  # noqa: SIM905  (a list of words)
PYTHON = os.path.realpath(sys.executable)
SLOW = Path(__file__).with_name("slow_metadata.c")


@dataclass(frozen=True)
class Bench:
    """The directory that stands for the shared one, its tar, the store, and the slowing library."""

    top: Path

    @property
    def shared(self) -> Path:
        return self.top / "shared"

    @property
    def tar(self) -> Path:
        return self.top / "env.tar"

    @property
    def store(self) -> Path:
        return self.top / "store"

    @property
    def library(self) -> Path:
        return self.top / "slow.so"

    def import_torch(self, tree: Path, delay_ms: float) -> tuple[float, int]:
        """Seconds of a process that imports torch from `tree`, and its opens and stats."""
        count = self.top / "count"
        environ = {
            "PYTHONPATH": str(tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "LD_PRELOAD": str(self.library),
            "SLOW_PREFIX": str(self.shared),
            "SLOW_US": str(int(delay_ms * 1000)),
            "SLOW_COUNT": str(count),
        }
        began = time.perf_counter()
        subprocess.run([PYTHON, "-S", "-c", "import torch"], env=environ, check=True)
        return time.perf_counter() - began, int(count.read_text())


@contextmanager
def bench() -> Iterator[Bench]:
    """Everything that is needed, in a directory of its own that goes at the end."""
    top = Path(tempfile.mkdtemp(prefix="malleable-bench-", dir="/var/tmp"))
    try:
        made = Bench(top)
        library = ["cc", "-O2", "-shared", "-fPIC", "-o", str(made.library), str(SLOW), "-ldl"]
        subprocess.run(library, check=True)
        copy_packages(made.shared)
        with tarfile.open(made.tar, "w") as archive:
            archive.add(made.shared, ".")
        made.store.mkdir(mode=0o711)
        yield made
    finally:
        shutil.rmtree(top)


def copy_packages(target: Path) -> None:
    """torch and what it imports, as this interpreter has them, with their compiled files."""
    site = Path(sysconfig.get_path("platlib"))
    for name in PACKAGES:
        if (site / name).is_dir():
            shutil.copytree(site / name, target / name, symlinks=True)
        elif (site / name).exists():
            shutil.copy2(site / name, target / name)


def lay(made: Bench, job: int) -> float:
    """Seconds of the hook."""
    environ = {
        "SPANK_MALLEABLE": "1-2",
        "SPANK_MALLEABLE_ENV": str(made.tar),
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_UID": str(os.geteuid()),
        "SLURM_JOB_GID": str(os.getegid()),
    }
    hook = [sys.executable, "-I", str(Path(preposition.__file__).parent)]
    words = [f"--store={made.store}", "--seconds=300", "--free-gib=0", "--free-share=0"]
    began = time.perf_counter()
    subprocess.run([*hook, *words], env=environ, check=True)
    return time.perf_counter() - began


def drop(tree: Path) -> None:
    """Take the pages of a tree's files out of memory."""
    for path in tree.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(made: Bench, tree: Path, delay_ms: float, runs: int) -> dict[str, float]:
    """Medians, in seconds; `operations` are the opens and stats that were slowed."""
    cold, warm, operations = [], [], 0
    for _ in range(runs):
        drop(tree)
        cold.append(made.import_torch(tree, delay_ms)[0])
        seconds, operations = made.import_torch(tree, delay_ms)
        warm.append(seconds)
    return {
        "cold_s": round(statistics.median(cold), 2),
        "warm_s": round(statistics.median(warm), 2),
        "operations": operations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--delay-ms", type=float, nargs="+", default=[0, 1])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with bench() as made:
        drop(made.top)
        result: dict[str, object] = {
            "tar_mib": made.tar.stat().st_size >> 20,
            "lay_s": round(lay(made, 1), 2),
            "lay_again_s": round(statistics.median(lay(made, job) for job in (2, 3, 4)), 2),
        }
        copy = (made.store / str(os.geteuid()) / "job-1").resolve(strict=True)
        result["laid"] = measure(made, copy, 0, options.runs)
        print("laid", result, flush=True)
        for delay_ms in options.delay_ms:
            result[f"shared_{delay_ms:g}_ms"] = measure(made, made.shared, delay_ms, options.runs)
            print(f"shared, {delay_ms:g} ms", result[f"shared_{delay_ms:g}_ms"], flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
