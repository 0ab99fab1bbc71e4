"""Give workers that listen time to reach a step boundary before a planned stop.

This is the agent's side of `notice()`: it posts the news and waits, within bounds, until every
listening worker of its node is ready. It also reads the progress given to `report()`.
"""

from __future__ import annotations

from slurm_hooks.elastic.mailbox import Mailbox, PlannedChange
from slurm_hooks.elastic.rendezvous.state import Stop


class Forewarning:
    """News for the workers of an agent. Without a mailbox no worker listens."""

    def __init__(self, mailbox: Mailbox | None, patience_s: float) -> None:
        self._mailbox = mailbox
        self._patience_s = patience_s
        self._since: float | None = None

    def is_heard(self, reason: Stop, now: float) -> bool:
        """Post the news unless that was done, and return whether the workers may be stopped."""
        if self._mailbox is None:
            return True
        if self._since is None:
            self._since = now
            why = "grow" if reason is Stop.GROW else "leave"
            self._mailbox.post(PlannedChange(why, self._patience_s))
        return not self._is_awaited() or now - self._since > self._patience_s

    def is_answered(self) -> bool:
        """Tell whether workers that have the news wait to be stopped now."""
        return self._since is not None and self.is_listened_to() and not self._is_awaited()

    def is_listened_to(self) -> bool:
        """Tell whether the workers here hear of planned changes."""
        return self._mailbox is not None and self._mailbox.is_listened_to()

    def _is_awaited(self) -> bool:
        return self._mailbox is not None and self._mailbox.is_awaited()

    def has_ended(self) -> bool:
        """Tell whether the training here has made its last step."""
        return self._mailbox is not None and self._mailbox.has_ended()

    def has_failed(self) -> bool:
        """Tell whether a worker here was about to end with an error, whatever its exit code is."""
        return self._mailbox is not None and self._mailbox.has_failed()

    def withdraw(self) -> None:
        """The change is cancelled, for instance because the newcomer is lost. The next change is
        news again.
        """
        if self._since is not None and self._mailbox is not None:
            self._mailbox.withdraw()
        self._since = None

    def samples(self) -> int:
        """Return how far the training is by the reports of the workers here, 0 without a report."""
        return self._mailbox.samples() if self._mailbox is not None else 0

    def file(self) -> str:
        """Return the file that belongs to the state in this node's memory, empty without such a
        state.
        """
        return self._mailbox.file() if self._mailbox is not None else ""

    def is_kept(self) -> bool:
        """Tell whether the last step boundary of the workers here survives them, however they
        end.
        """
        return self._mailbox is not None and self._mailbox.is_watched()

    def clear(self) -> None:
        """A new round begins."""
        self._since = None
        if self._mailbox is not None:
            self._mailbox.clear()
