"""Seconds of a record as the moments of a snapshot, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

SOME_MIDNIGHT_S = 1_767_225_600.0  # 2026-01-01, UTC


@dataclass(frozen=True)
class Calendar:
    """Second 0 of a record is `epoch`."""

    epoch: datetime

    def at(self, seconds: float) -> datetime:
        """The moment of that second."""
        return self.epoch + timedelta(seconds=seconds)

    def seconds(self, moment: datetime) -> float:
        """The second of that moment."""
        return (moment - self.epoch).total_seconds()


def calendar_of(patience_s: float) -> Calendar:
    """A calendar in which overdue jobs count their turns from second 0."""
    patiences = math.ceil(SOME_MIDNIGHT_S / patience_s) if patience_s else 1
    epoch_s = patiences * patience_s if patience_s else SOME_MIDNIGHT_S
    return Calendar(datetime.fromtimestamp(epoch_s, timezone.utc))
