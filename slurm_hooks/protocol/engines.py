"""A row for each engine, for the reconciler, for the jobs and for job_submit.

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
    """The traits of an engine. Each engine under torchrun has a folder with its name. The gangs of
    `malleable run` share a folder."""

    name: str  # as in --malleable=...,engine=NAME
    is_gang: bool  # all fragments are a single world; otherwise each is a separate world
    has_rounds: bool  # training stops while fragments come and go
    by_torchrun: bool  # the script starts torchrun, so it gets PET_* and our rendezvous
    is_pool: bool  # independent workers: MIN may be 0, exit code 0 means no work is left

    @property
    def traits(self) -> str:
        """The traits in words, as job_submit passes them to the plugin: `gang+rounds`."""
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
_OWN = ("gang+rounds", "pool")  # the traits that a site's own engine can have


def engine_of(name: str, traits: str = "") -> Optional[Engine]:
    """Return the engine of this name. A site's own engine is unknown (None) without its `traits`.
    Raises ValueError for words that are not traits."""
    if name in ENGINES or not traits:
        return ENGINES.get(name)
    words = traits.split("+")
    flags = [word in words for word in TRAITS]
    if not set(words) <= set(TRAITS) or len(words) != sum(flags):
        raise ValueError(f"{traits!r} are not traits of an engine: {', '.join(TRAITS)}")
    return Engine(name, *flags)


def offered(entries: Iterable[str]) -> dict[str, Engine]:
    """Return the engines that a site offers: names of ours, and its own as `horovod:gang+rounds`.
    Raises ValueError with the fault."""
    rows: dict[str, Engine] = {}
    for entry in entries:
        name, _, traits = entry.partition(":")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of an engine: use a-z, 0-9 and _, at most 32")
        if name in ENGINES and traits:
            raise ValueError(f"{name} is an engine of this package with fixed traits: write {name}")
        row = engine_of(name, traits)
        if row is None:
            raise ValueError(
                f"{name} is not an engine of this package: add its traits, {name}:gang+rounds or "
                f"{name}:pool"
            )
        if traits and row.traits not in _OWN:
            raise ValueError(f"{entry}: a site's own engine has the traits {' or '.join(_OWN)}")
        if rows.setdefault(name, row) != row:
            raise ValueError(f"{entry}: {name} is already listed as {rows[name].traits}")
    return rows


# A script with any of these words starts torch's launcher: for job_submit and doctor.
LAUNCHERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "elastic_launch",
    "accelerate",
    "slurm_hooks",
)
DEFAULT = "torchrun"  # for a request without an engine, as in the plugin and in job_submit
# If torch is too old to load us, or cannot see us, its only message is the name of the backend. So
# the name that jobs get says what is missing.
BACKENDS = (
    "malleable",
    "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job",
)
