"""One row per engine, for the reconciler, for the jobs and for job_submit.

job_submit passes the traits of a job's engine to the plugin (plugins/spank/traits.c).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

TRAITS = ("gang", "rounds", "torchrun", "pool")


@dataclass(frozen=True)
class Engine:
    """The traits of one engine. Each engine under torchrun has a folder of its name, the gangs of
    `malleable run` share one."""

    name: str  # as in --malleable=...,engine=NAME
    is_gang: bool  # all fragments are one world; otherwise each is a world of its own
    has_rounds: bool  # training stops while fragments come and go
    by_torchrun: bool  # the script starts torchrun, so it gets PET_* and our rendezvous
    is_pool: bool  # workers that never meet: MIN may be 0, exit code 0: none left for me

    @property
    def traits(self) -> str:
        """In words, as job_submit passes them to the plugin: `gang+rounds`."""
        flags = (self.is_gang, self.has_rounds, self.by_torchrun, self.is_pool)
        return "+".join(word for word, flag in zip(TRAITS, flags) if flag)


ENGINES = {
    row.name: row
    for row in (
        Engine("torchrun", is_gang=True, has_rounds=True, by_torchrun=True, is_pool=False),
        Engine("torchft", is_gang=False, has_rounds=False, by_torchrun=True, is_pool=False),
        Engine("mpi", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("tensorflow", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("command", is_gang=True, has_rounds=True, by_torchrun=False, is_pool=False),
        Engine("pool", is_gang=False, has_rounds=False, by_torchrun=False, is_pool=True),
    )
}
_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_OWN = ("gang+rounds", "pool")  # what an engine of the site's own can be


def engine_of(name: str, traits: str = "") -> Optional[Engine]:
    """The engine of this name. `traits` say what one of the site's own is; without them it is not
    known (None). Raises ValueError for words that are no traits."""
    if name in ENGINES or not traits:
        return ENGINES.get(name)
    words = traits.split("+")
    flags = [word in words for word in TRAITS]
    if not set(words) <= set(TRAITS) or len(words) != sum(flags):
        raise ValueError(f"{traits!r} are not traits of an engine: {', '.join(TRAITS)}")
    return Engine(name, *flags)


def offered(entries: Iterable[str]) -> dict[str, Engine]:
    """The engines that a site offers: names of ours, and its own as `horovod:gang+rounds`. Raises
    ValueError that says what is wrong."""
    rows: dict[str, Engine] = {}
    for entry in entries:
        name, _, traits = entry.partition(":")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of an engine: a-z, 0-9 and _, 32 at most")
        if name in ENGINES and traits:
            raise ValueError(f"{name} is one of our engines, whose traits are known: write {name}")
        row = engine_of(name, traits)
        if row is None:
            raise ValueError(f"{name} is not one of our engines: write {name}:gang+rounds or so")
        if traits and row.traits not in _OWN:
            raise ValueError(
                f"{entry}: an engine of the site's own has the traits {' or '.join(_OWN)}"
            )
        if rows.setdefault(name, row) != row:
            raise ValueError(f"{entry}: {name} is there already as {rows[name].traits}")
    return rows


# A script that has one of these words starts torch's launcher: for job_submit and doctor.
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "elastic_launch",
    "accelerate",
    "slurm_hooks",
)
DEFAULT = "torchrun"  # where a request names none, here as in the plugin and in job_submit
# torch names the backend when it cannot find it, and that is all that we can say where torch
# is too old to load us, or cannot see us. So the name that jobs are given says what is missing.
BACKENDS = (
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
