"""The shared directory for callers that can wait: passing trouble of the file system is logged
once a minute; only lasting trouble is an error.
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
    """Methods raise DirectoryError when patience has run out."""

    def __init__(self, directory: SharedDirectory, patience_s: float = PATIENCE_S) -> None:
        self.plain = directory
        self._patience_s = patience_s
        self._complained = float("-inf")

    def read(self) -> State:
        """The state as it is now."""
        found: list[State] = []
        self.insist(lambda: found.append(self.plain.read()))
        return found[0]

    def update(self, change: Callable[[State], State]) -> State:
        """As SharedDirectory.update."""
        found: list[State] = []
        self.insist(lambda: found.append(self.plain.update(change)))
        return found[0]

    def insist(self, deed: Callable[[], object]) -> None:
        """Do `deed`, again and again if the directory does not let us."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                deed()
                return
            except DirectoryError as error:
                if time.monotonic() > deadline:
                    raise
                self.complain(error)
            time.sleep(1.0)

    def complain(self, error: DirectoryError) -> None:
        """Log it, at most once a minute."""
        now = time.monotonic()
        if now - self._complained >= COMPLAIN_S:
            self._complained = now
            say(str(error))
