"""The entry point of the group `torchrun.handlers`, by which torchrun finds the handler. It also
joins the engine to the torchrun in which it runs.

torchrun loads it whenever it starts, in jobs of all kinds. So the import is cheap and has no
effect. torch calls the factory, then the creator if our backend is chosen.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from slurm_hooks.elastic.agent.companion import WorldMaker
from slurm_hooks.elastic.engines.torchrun import register
from slurm_hooks.elastic.engines.torchrun.flags import is_ours
from slurm_hooks.protocol.engines import ENGINES


def handlers() -> Callable[[Any], Any]:
    """Return the creator. torch calls this factory once for each name of the backend.

    In an agent of ours it begins to listen for the notice at once, since an earlier signal would be
    lost.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ and is_ours(os.environ):
        register.begin()
    return create_handler


def create_handler(params: Any) -> Any:
    """Return a handler for torch's RendezvousParameters. Exits with a message if that is
    impossible.
    """
    return register.create_handler(params, world_maker(os.environ.get("MALLEABLE_ENGINE", "")))


def world_maker(engine: str) -> WorldMaker:
    """Return `make_world` of the engine's own folder.

    It is torchrun's for an unknown engine, or if torchrun does not start the engine: the script has
    brought its own rendezvous parameters.
    """
    row = ENGINES.get(engine)
    name = engine if row and row.by_torchrun else "torchrun"
    made: WorldMaker = importlib.import_module(f"{__package__}.{name}.world").make_world
    return made
