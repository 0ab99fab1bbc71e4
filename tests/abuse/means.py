"""An attacker's tools: a separate client, and files that record the user under whom they ran."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from slurm_hooks.sandbox import Sandbox

HERE = Path(__file__).resolve().parent
PROGRAMS = ("find", "tr", "id", "setpriv", "timeout", "env", "python3", "squeue", "scontrol", "sh")
LOADED = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

__attribute__((constructor)) static void tell(void)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s/library.%d.%d", PLACE, (int)geteuid(), (int)getpid());
	close(open(path, O_CREAT | O_WRONLY, 0644));
}
"""


def compiled(source: Path, target: Path, *options: str) -> Path:
    """Compile a C source with gcc, for all users."""
    subprocess.run(["gcc", str(source), "-o", str(target), *options], check=True, timeout=150)
    target.chmod(0o755)
    return target


def own_client(box: Sandbox) -> Path:
    """A program that sends submissions as no command of Slurm does."""
    return compiled(HERE / "own_client.c", box.work / "own_client", "-lslurm")


def submit_by_own_client(box: Sandbox, user: str, script: Path, fields: Sequence[str]) -> str:
    """The job's id, or Slurm's error message."""
    argv = [str(box.work / "own_client"), str(box.work), str(script), *fields]
    done = box.run(argv, user=user, check=False)
    return (done.stdout + done.stderr).strip()


class Canaries:
    """Libraries, programs and start-up files that leave a file with the user they ran as."""

    def __init__(self, place: Path) -> None:
        self.seen = place / "seen"
        self.seen.mkdir(parents=True)
        for path in (place, self.seen):
            path.chmod(0o1777)
        (place / "loaded.c").write_text(LOADED)
        options = ("-shared", "-fPIC", f'-DPLACE="{self.seen}"')
        self._library = compiled(place / "loaded.c", place / "loaded.so", *options)
        self._line = f": >{self.seen}/%s.$(/usr/bin/id -u).$$\n"
        (place / "start.sh").write_text(self._line % "start")
        self._start = place / "start.sh"
        self._python = self._directory("python", {"sitecustomize.py": self._in_python()})
        programs = {
            name: f'#!/bin/dash\n{self._line % name}exec /usr/bin/{name} "$@"\n'
            for name in PROGRAMS
        }
        self._path = self._directory("bin", programs)

    def _in_python(self) -> str:
        return f"import os\nopen(f'{self.seen}/python.{{os.geteuid()}}.{{os.getpid()}}', 'w')\n"

    def _directory(self, name: str, files: dict[str, str]) -> Path:
        made = self.seen.with_name(name)
        made.mkdir()
        for file, text in files.items():
            (made / file).write_text(text)
            (made / file).chmod(0o755)
        return made

    @property
    def variables(self) -> dict[str, str]:
        """The environment that loads them into every process that inherits it."""
        return {
            "LD_PRELOAD": str(self._library),
            "PATH": f"{self._path}:/usr/bin:/bin",
            "PYTHONPATH": str(self._python),
            "BASH_ENV": str(self._start),
            "ENV": str(self._start),
        }

    def kinds(self, user: int) -> set[str]:
        """The kinds of canaries that have run as this user."""
        names = (path.name.split(".") for path in self.seen.iterdir())
        return {name[0] for name in names if name[1] == str(user)}
