"""Read the cgroup.conf of this host's slurmd."""

from __future__ import annotations

from slurm_hooks.doctor.facts import Cgroups, SlurmSays, Unread
from slurm_hooks.doctor.gather.files import configuration
from slurm_hooks.doctor.gather.plugstack import find_beside


def read_cgroups(slurm: SlurmSays | Unread) -> Cgroups:
    """The settings in cgroup.conf, empty without the file. Raises UsageError without a directory of
    Slurm's, and OSError."""
    path = find_beside(slurm, "cgroup.conf")
    lines = configuration(path) if path.exists() else ()
    pairs = (line.text.partition("=")[::2] for line in lines)
    return Cgroups(str(path), {key.strip().lower(): value.strip() for key, value in pairs})
