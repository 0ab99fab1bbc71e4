"""The entry point of the group `torchrun.handlers`: how torchrun finds the handler.

torchrun loads it whenever it starts, in jobs of all kinds, so importing it costs nothing
and does nothing; torch calls the factory, then the creator if `malleable` is chosen.
"""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from functools import cache
from typing import Any

from .board import Board
from .directory import DirectoryError, SharedDirectory
from .forewarn import Forewarning
from .lease import Lease
from .membership import Membership
from .notice import Notice
from .options import OptionError, identity, options, overrides, remarks, say, warm_modules
from .pulse import Pulse
from .session import Session
from .standby import Standby


def handlers() -> Callable[[Any], Any]:
    """The factory that torch calls; returns the creator. In an agent of ours it begins
    to listen for the notice at once, since a signal that comes earlier is lost."""
    is_agent = "TORCHELASTIC_RUN_ID" not in os.environ
    if is_agent and os.environ.get("PET_RDZV_BACKEND") == "malleable":
        _listening().listen_early()
        flag = overrides(sys.argv)
        if flag:
            say(f"your {flag} replaces the rendezvous of the job: fragments will not meet")
    return create_handler


@cache
def _listening() -> Notice:
    """The one pair of ears of this process."""
    return Notice()


def create_handler(params: Any) -> Any:
    """A handler for torch's RendezvousParameters; exits with one line if it cannot be."""
    from .handler import MalleableHandler  # noqa: PLC0415  (brings in torch)

    notice = _listening()
    notice.listen()
    try:
        settings = options(params, os.environ)
        directory = SharedDirectory(settings.directory, settings.run)
        directory.open()
    except (OptionError, DirectoryError) as error:
        raise SystemExit(f"malleable: {error}") from None
    for line in remarks(params, os.environ):
        say(line)
    lease = Lease(os.environ, settings.notice_s)
    me = identity(os.environ, settings.host, lease.ends)
    pulse = Pulse(directory, me.token, settings.beat_s, settings.keep_alive_s)
    forewarning = Forewarning(_board(), settings.boundary_s)
    wanted = lease.wanted[: settings.limits.largest]
    membership = Membership(me, directory, pulse, wanted)
    session = Session(settings, membership, lease, notice, forewarning)
    return MalleableHandler(settings, session, notice, warm_workers())


def _board() -> Board | None:
    try:
        board = Board()
    except (OSError, AttributeError):  # no memory files here: workers get no news
        return None
    os.environ.update(board.environment())
    return board


def warm_workers() -> Standby | None:
    """Workers in waiting for what torchrun was told to run; None if they are not wanted
    or its command line or torch itself is not as known."""
    extra = warm_modules(os.environ)
    if extra is None or "PYTHON_EXEC" in os.environ:
        return None
    try:
        run: Any = importlib.import_module("torch.distributed.run")
        from torch.distributed.elastic.multiprocessing import subprocess_handler  # noqa: PLC0415

        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
            told = run.parse_args(sys.argv[1:])
            count = run.determine_local_world_size(told.nproc_per_node)
        if told.module or told.no_python or told.run_path:
            return None
        standby = Standby(told.training_script, count, extra)
        is_installed = standby.install(subprocess_handler.SubprocessHandler)
    except (SystemExit, Exception):  # whatever another torch has changed: workers start cold
        return None
    atexit.register(standby.dismiss)
    return standby if is_installed else None
