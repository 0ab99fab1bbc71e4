"""cgroup.conf as slurmd of this host reads it."""

from __future__ import annotations

from slurm_hooks.doctor.facts import Cgroups, SlurmSays, Unread
from slurm_hooks.doctor.gather.files import configuration
from slurm_hooks.doctor.gather.plugstack import find_beside


def read_cgroups(slurm: SlurmSays | Unread) -> Cgroups:
    """Its settings, none if there is no such file. Raises UsageError if no directory of Slurm's is
    found, OSError."""
    path = find_beside(slurm, "cgroup.conf")
    lines = configuration(path) if path.exists() else ()
    pairs = (line.text.partition("=")[::2] for line in lines)
    return Cgroups(str(path), {key.strip().lower(): value.strip() for key, value in pairs})
