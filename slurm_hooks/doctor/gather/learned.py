"""Read the state of the file with the measured speeds of jobs, and of its disk."""

from __future__ import annotations

import os
from pathlib import Path

from slurm_hooks.books.storage.place import aside
from slurm_hooks.doctor.facts import LearnedSeen
from slurm_hooks.doctor.gather.files import see
from slurm_hooks.doctor.gather.shared import MOUNTS, file_system
from slurm_hooks.learning.store.connect import damage, learned_path
from slurm_hooks.settings.values import Settings

MIB = 2**20


def read_learned(settings: Settings) -> LearnedSeen:
    """The state of the file. Raises OSError or Unusable if this user may not read it."""
    path = learned_path(settings)
    file = see(path)
    place = _nearest(path.parent)
    kind, _ = file_system(place, MOUNTS.read_text(errors="replace").splitlines())
    disk = os.statvfs(place)
    return LearnedSeen(
        path=str(path),
        file=file,
        trouble=damage(settings) if file else "",
        has_damaged=bool(aside(path)),
        kind=kind,
        room_mib=0.0 if disk.f_flag & os.ST_RDONLY else disk.f_bavail * disk.f_frsize / MIB,
    )


def _nearest(directory: Path) -> Path:
    """The directory, or its nearest existing parent."""
    return next(path for path in (directory, *directory.parents) if see(path))
