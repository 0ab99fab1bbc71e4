"""The shared directory for callers that can wait. Passing trouble of the file system is logged once
a minute. Only lasting trouble is an error.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.rendezvous.directory import DirectoryError, SharedDirectory
from slurm_hooks.elastic.rendezvous.state import State

PATIENCE_S = 60.0
COMPLAIN_S = 60.0


class PatientDirectory:
    """Repeats an action `patiently` until patience runs out, which raises DirectoryError.

    `once` is the directory for callers that cannot wait. There the first trouble is an error:
    `directory.read_patiently()`, `directory.once.read()`.
    """

    def __init__(self, directory: SharedDirectory, patience_s: float = PATIENCE_S) -> None:
        self.once = directory
        self._patience_s = patience_s
        self._complained = float("-inf")

    def read_patiently(self) -> State:
        """As SharedDirectory.read."""
        states: list[State] = []
        self.do_patiently(lambda: states.append(self.once.read()))
        return states[0]

    def update_patiently(self, change: Callable[[State], State]) -> State:
        """As SharedDirectory.update."""
        states: list[State] = []
        self.do_patiently(lambda: states.append(self.once.update(change)))
        return states[0]

    def do_patiently(self, deed: Callable[[], object]) -> None:
        """Do `deed`, again and again while it raises DirectoryError.

        Patience begins with the first error. Before that the deed may have hung for as long as the
        file server was away.
        """
        deadline = float("inf")
        while True:
            try:
                deed()
                return
            except DirectoryError as error:
                now = time.monotonic()
                if now > deadline:
                    raise
                deadline = min(deadline, now + self._patience_s)
                self.complain(error)
            time.sleep(1.0)

    def complain(self, error: DirectoryError) -> None:
        """Log it, at most once a minute."""
        now = time.monotonic()
        if now - self._complained >= COMPLAIN_S:
            self._complained = now
            say(str(error))
