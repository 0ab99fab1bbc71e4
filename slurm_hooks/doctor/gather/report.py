"""Read the parts of a bundle beyond the facts of doctor: a snapshot, versions, the last ticks."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Union

from slurm_hooks import __version__
from slurm_hooks.doctor.facts import Facts, SlurmSays, Unread
from slurm_hooks.doctor.gather.controller import SERVICE
from slurm_hooks.doctor.gather.files import attempt
from slurm_hooks.model import Snapshot
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command

PACKAGES = ("PuLP", "ClusterShell", "filelock", "rich", "highspy")
LINES = "300"


def take_snapshot(facts: Facts) -> Union[Snapshot, Unread]:
    """A tick's snapshot of Slurm now, without the switch, accounts and measured speeds."""
    tick = facts.settings.tick
    port = Live(tick.command_timeout_s, tick.slurm_bin)
    site = facts.settings.site
    return attempt(lambda: observe(port, site.partitions, site.part_nodes), 2 * port.timeout_s)


def read_journal(facts: Facts) -> Union[str, Unread]:
    """The last lines of the tick's unit."""
    argv = ("journalctl", f"--unit={SERVICE}", f"--lines={LINES}", "--no-pager", "--no-hostname",
            "--output=short-iso")  # fmt: skip
    limit_s = facts.settings.tick.command_timeout_s
    return attempt(lambda: Live(limit_s).ask(Command(argv)), limit_s)


def find_versions(facts: Facts) -> dict[str, str]:
    """Versions by name, empty if not installed."""
    slurm = facts.slurm.value("SLURM_VERSION") if isinstance(facts.slurm, SlurmSays) else ""
    return {
        "slurm-malleable": __version__,
        "slurm": slurm,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()),
        **{name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
