"""The entry point of the group `torchrun.handlers`: how torchrun finds the handler.

torchrun loads it whenever it starts, in jobs of all kinds, so importing it costs nothing
and does nothing; torch calls the factory, then the creator if `malleable` is chosen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from .directory import DirectoryError, SharedDirectory
from .lease import Lease
from .membership import Membership
from .notice import Notice
from .options import OptionError, identity, options, overrides, remarks, say
from .pulse import Pulse
from .session import Session


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
    session = Session(settings, Membership(me, directory, pulse), lease, notice)
    return MalleableHandler(settings, session, notice)
