"""Read plugstack.conf of this host, and the files that it names."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Optional

from slurm_hooks.doctor.facts import FileSeen, Line, PluginLine, Plugstack, SlurmSays, Unread
from slurm_hooks.doctor.gather.files import attempt, configuration, see
from slurm_hooks.errors import UsageError

CACHES = ("/run/slurm/conf", "/var/spool/slurmd/conf-cache", "/var/spool/slurm/d/conf-cache")
ARGUMENTS = ("pythonpath", "max_restarts", "dir", "env_store", "untested")  # settings.c
OUR_NAME = "malleable.so"
_VERSION = re.compile(rb"\x00(\d{1,2}\.\d{1,3}\.\d{1,3})\x00")
_TESTED = re.compile(rb"malleable: tested with Slurm ([\d, ]{4,200})\x00")
MOST_BYTES = 1 << 22


def read_plugstack(slurm: SlurmSays | Unread) -> Plugstack:
    """The file that loads plugins here. Raises UsageError without a plugstack.conf, and OSError."""
    named = "" if isinstance(slurm, Unread) else slurm.value("PlugStackConfig")
    path = find_beside(slurm, "plugstack.conf", named)
    directory = "/usr/lib64/slurm"
    if not isinstance(slurm, Unread):
        directory = slurm.value("PluginDir") or directory
    lines = configuration(path) if path.exists() else ()
    ours = next((line for line in lines if OUR_NAME in line.text), None)
    pyxis = next((line for line in lines if "spank_pyxis.so" in line.text), None)
    pyxis_path = _absolute(pyxis.text.split()[1], directory) if pyxis else ""
    return Plugstack(
        path=str(path),
        ours=_plugin_line(ours, directory) if ours else None,
        directory=directory,
        pyxis=pyxis_path,
        pyxis_version=_version(Path(pyxis_path)) if pyxis else None,
    )


def find_beside(slurm: SlurmSays | Unread, file: str, named: str = "") -> Path:
    """The path of a file of this host's Slurm: beside slurm.conf, unless a setting names it.

    Raises UsageError without a directory of Slurm's.
    """
    local = os.environ.get("SLURM_CONF", "")
    beside = [] if isinstance(slurm, Unread) else [str(Path(slurm.conf).parent)]
    places = [*([str(Path(local).parent)] if local else []), *beside, *_cache(slurm), *CACHES]
    choices = [Path(named)] if named else [Path(place) / file for place in places]
    file_there = next((choice for choice in choices if choice.exists()), None)
    if file_there is not None:
        return file_there
    if not any(choice.parent.is_dir() for choice in choices):
        shown = ", ".join(map(str, choices))
        raise UsageError(f"there is no {file} on this host (tried {shown})")
    return next(choice for choice in choices if choice.parent.is_dir())


def _cache(slurm: SlurmSays | Unread) -> list[str]:
    """The directory in which this host's slurmd keeps the configuration from slurmctld."""
    spool = "" if isinstance(slurm, Unread) else slurm.value("SlurmdSpoolDir")
    name = socket.gethostname().split(".")[0]
    return [f"{spool.replace('%h', name).replace('%n', name)}/conf-cache"] if spool else []


def _absolute(name: str, directory: str) -> str:
    return name if name.startswith("/") else f"{directory}/{name}"


def _plugin_line(line: Line, directory: str) -> PluginLine:
    words = line.text.split()
    plugin = _absolute(words[1] if len(words) > 1 else OUR_NAME, directory)
    pairs = [word.partition("=") for word in words[2:]]
    known = {name: value for name, _, value in pairs if name in ARGUMENTS}
    return PluginLine(
        where=line,
        is_required=words[0] == "required",
        plugin=plugin,
        plugin_file=_seen(plugin),
        arguments=known,
        unknown=tuple(name for name, _, _ in pairs if name not in ARGUMENTS),
        job_path_file=_seen(known.get("pythonpath")),
        env_store_file=_seen(known.get("env_store")),
        tested=_tested(Path(plugin)),
    )


def _seen(path: Optional[str]) -> Optional[FileSeen]:
    """The state of a path, None without a file, or if it cannot be read."""
    state = attempt(lambda: see(Path(path))) if path else None
    return None if isinstance(state, Unread) else state


def _tested(path: Path) -> tuple[tuple[int, int], ...]:
    """The releases on which a plugin was tested, from its file, empty for a strict build."""
    try:
        with path.open("rb") as file:
            match = _TESTED.search(file.read(MOST_BYTES))
    except OSError:
        return ()
    numbers = [int(number) for number in re.findall(rb"\d+", match.group(1))] if match else []
    return tuple(divmod(number, 100) for number in numbers)


def _version(path: Path) -> Optional[tuple[int, ...]]:
    """The version in a plugin's text, if exactly a single text looks like a version."""
    try:
        with path.open("rb") as file:
            versions = set(_VERSION.findall(file.read(MOST_BYTES)))
    except OSError:
        return None
    return tuple(map(int, versions.pop().split(b"."))) if len(versions) == 1 else None
