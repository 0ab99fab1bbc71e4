"""The entry point of the group `torchrun.handlers`: how torchrun finds the handler, and the one
place that joins an engine to the torchrun that it lives under.

torchrun loads it whenever it starts, in jobs of all kinds, so importing it costs nothing
and does nothing; torch calls the factory, then the creator if our backend is chosen.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from slurm_hooks.elastic.agent.companion import WorldMaker
from slurm_hooks.elastic.engines.torchrun import register
from slurm_hooks.elastic.engines.torchrun.flags import is_ours
from slurm_hooks.words.engines import ENGINES


def handlers() -> Callable[[Any], Any]:
    """The factory that torch calls, once for each name of the backend; returns the creator.
    In an agent of ours it begins to listen for the notice at once, since a signal that comes
    earlier is lost."""
    if "TORCHELASTIC_RUN_ID" not in os.environ and is_ours(os.environ):
        register.begin()
    return create_handler


def create_handler(params: Any) -> Any:
    """A handler for torch's RendezvousParameters; exits with one line if it cannot be."""
    return register.create_handler(params, world_maker(os.environ.get("MALLEABLE_ENGINE", "")))


def world_maker(engine: str) -> WorldMaker:
    """`make_world` of the engine's own folder. With an engine that is not started by torchrun, or
    none, the script has brought its own rendezvous parameters, for torchrun."""
    row = ENGINES.get(engine)
    name = engine if row and row.by_torchrun else "torchrun"
    made: WorldMaker = importlib.import_module(f"{__package__}.{name}.world").make_world
    return made
