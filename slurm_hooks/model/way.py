"""The relation of a job's fragments to each other: a gang, or the workers of a pool.

Each field is a question. So a rule names the property that it depends on, not an engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from slurm_hooks.words.engines import Engine


@dataclass(frozen=True)
class Way:
    """The answers for a gang, or for a pool."""

    lowest_min: int  # that a request may name
    needs_min: bool  # below its minimum it cannot go on
    works_as_one: bool  # the start or the loss of a fragment costs all of them
    zero_is_idle: bool  # exit code 0 says that this fragment found no work, and no more than that
    may_wish: bool  # its script may say how many nodes it wants


GANG = Way(lowest_min=1, needs_min=True, works_as_one=True, zero_is_idle=False, may_wish=False)
POOL = Way(lowest_min=0, needs_min=False, works_as_one=False, zero_is_idle=True, may_wish=True)


def way_of(engine: Optional[Engine]) -> Way:
    """The way of an engine. An unknown engine counts as a gang, which may do less."""
    return POOL if engine is not None and engine.is_pool else GANG
