"""Finds the Slurm that a sandbox runs, so that the Slurm version is an input like any other.

Knows the paths of programs and how to call them, even inside another root. Never installs packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from slurm_hooks.errors import MissingProgram, UnreadableOutput

# program -> the Debian package that has it
DAEMONS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "munged": "munge"}
CLIENTS = {
    "sinfo": "slurm-client",
    "sbatch": "slurm-client",
    "scancel": "slurm-client",
    "scontrol": "slurm-client",
    "squeue": "slurm-client",
    "srun": "slurm-client",
}
BIN_DIRS = ("/usr/bin", "/bin", "/usr/local/bin", "/opt/slurm/bin")
SBIN_DIRS = ("/usr/sbin", "/sbin", "/usr/local/sbin", "/opt/slurm/sbin")
PLUGIN_DIRS = ("usr/lib/*/slurm-wlm", "usr/lib*/slurm", "opt/slurm/lib*/slurm")


@dataclass(frozen=True)
class Installation:
    """A Slurm: directories as seen inside its root, version as (22, 5, 8), and the way into it.

    `prefix` comes before every command, for example ("chroot", "/srv/trixie").
    """

    bin_dir: Path
    sbin_dir: Path
    munge_sbin_dir: Path
    plugin_dir: Optional[Path]
    version: tuple[int, ...]
    prefix: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """A PATH with the Slurm commands and the usual commands."""
        dirs = [str(self.bin_dir), str(self.sbin_dir), str(self.munge_sbin_dir)]
        return ":".join(dict.fromkeys([*dirs, "/usr/bin", "/bin", "/usr/sbin", "/sbin"]))

    @property
    def version_text(self) -> str:
        year, month = (*self.version, 0, 0)[:2]
        return ".".join([f"{year}", f"{month:02d}", *map(str, self.version[2:])])

    def daemon(self, name: str) -> str:
        """Returns the path of slurmctld, slurmd or munged, as seen inside the root."""
        directory = self.munge_sbin_dir if name == "munged" else self.sbin_dir
        return str(directory / name)


def find_installation(
    root: Optional[Path] = None, environ: Optional[Mapping[str, str]] = None
) -> Installation:
    """Returns the Slurm of this host, or of the directory tree `root`, which needs root rights.

    The caller must prepare such a root:

    * /proc, /dev and the directory of sandboxes (default: /tmp) are bind-mounted at the same paths.
    * The users that will submit have the same numbers in both `/etc/passwd`.
    * `localhost` resolves, and coreutils' `env` is there.

    Plugin, Lua files and job path are copied below the sandbox directory, so they are visible
    inside. A SPANK plugin must be built against that root's Slurm.

    Raises MissingProgram with every missing program and the packages that have them.
    """
    programs = _find_programs(root or Path("/"), os.environ if environ is None else environ)
    prefix = () if root is None else ("chroot", str(root))
    return Installation(
        bin_dir=programs["sinfo"].parent,
        sbin_dir=programs["slurmctld"].parent,
        munge_sbin_dir=programs["munged"].parent,
        plugin_dir=_find_plugin_dir(root or Path("/")),
        version=_ask_version([*prefix, str(programs["slurmctld"]), "-V"]),
        prefix=prefix,
    )


def _find_programs(root: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Returns program -> absolute path inside `root`. Only the host uses the caller's PATH."""
    path = environ.get("PATH", "").split(":") if root == Path("/") else []
    dirs = [entry for entry in (*path, *SBIN_DIRS, *BIN_DIRS) if entry.startswith("/")]
    wanted = {**DAEMONS, **CLIENTS}
    paths = {program: _first(root, dirs, program) for program in wanted}
    missing = {name: wanted[name] for name, where in paths.items() if where is None}
    if missing:
        raise MissingProgram(_missing_text(missing, root))
    return {program: where for program, where in paths.items() if where is not None}


def _first(root: Path, dirs: Sequence[str], program: str) -> Optional[Path]:
    for directory in dirs:
        candidate = root / directory.lstrip("/") / program
        # Debian links slurmctld to /etc/alternatives. From outside the root that link dangles.
        if os.path.islink(candidate) or os.access(candidate, os.X_OK):
            return Path(directory) / program
    return None


def _missing_text(missing: Mapping[str, str], root: Path) -> str:
    where = "on this host" if root == Path("/") else f"in {root}"
    packages = " ".join(sorted({*missing.values()}))
    return (
        f"A sandbox needs {', '.join(sorted(missing))}, not found {where} "
        f"(looked in PATH and {', '.join(SBIN_DIRS + BIN_DIRS)}). "
        f"On Debian or Ubuntu: apt-get install {packages} "
        "(everything a sandbox can use: slurmctld slurmd slurm-client munge, and for the "
        "SPANK plugin libslurm-dev gcc make)."
    )


def _find_plugin_dir(root: Path) -> Optional[Path]:
    for pattern in PLUGIN_DIRS:
        for candidate in sorted(root.glob(pattern)):
            if any(candidate.glob("*.so")):
                return Path("/") / candidate.relative_to(root)
    return None


def _ask_version(argv: Sequence[str]) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            argv, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingProgram(f"Tried {' '.join(argv)} to learn Slurm's version: {error}") from error
    return parse_version(answer.stdout or answer.stderr)


def parse_version(text: str) -> tuple[int, ...]:
    """Returns (22, 5, 8) for "slurm-wlm 22.05.8", and (24, 11, 0) for "slurm 24.11.0-0rc1".

    Raises UnreadableOutput if the text has no version.
    """
    match = re.search(r"slurm\S*\s+(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise UnreadableOutput(f"Expected something like 'slurm 22.05.8', saw {text.strip()!r}.")
    return tuple(int(part) for part in match.groups() if part is not None)


def has_compiler() -> bool:
    """Tells whether the SPANK plugin can be built here: make and a C compiler are on the PATH."""
    return shutil.which("make") is not None and shutil.which("cc") is not None
