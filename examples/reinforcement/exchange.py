"""Exchange weights and rollouts between a trainer and workers that come and go, in a directory.

It does not depend on the model, so copy it. Each file is written under another name, synchronised
to the disk and renamed. So a reader finds a whole file or no file, and there are no locks. A name
is used a single time, so two workers with the same name do not overwrite each other's rollouts.
Only the trainer removes rollouts and weights.
"""

from __future__ import annotations

import os
import pickle
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import torch

FULL = 8  # rollouts in the queue, which age while they wait
KEPT = 4  # versions of the weights, for workers that read slowly


class Exchange:
    """The directory. Methods raise OSError if it cannot be reached."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.weights, self.queue, self._drafts = (
            place / name for name in ("weights", "queue", "drafts")
        )
        for folder in (self.weights, self.queue, self._drafts):
            folder.mkdir(parents=True, exist_ok=True)

    def save(self, path: Path, content: Any) -> None:
        """Save as a whole or not at all."""
        draft = self._drafts / f"{path.name}.{secrets.token_hex(4)}"
        with draft.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def publish(self, version: int, weights: dict[str, Any]) -> None:
        """Publish the trainer's weights. Call it only after the checkpoint of this version, so that
        the version has a single meaning."""
        self.save(self.weights / f"{version:08}.pt", weights)
        for path in sorted(self.weights.glob("*.pt"))[:-KEPT]:
            path.unlink(missing_ok=True)

    def newest(self, known: int) -> Optional[tuple[int, Any]]:
        """The newest weights and their version, unless that version is known already."""
        version = max((int(path.stem) for path in self.weights.glob("*.pt")), default=known)
        if version == known:
            return None
        with suppress(OSError, RuntimeError):  # the trainer has removed them: look again
            return version, torch.load(self.weights / f"{version:08}.pt", weights_only=True)
        return None

    def put(self, name: str, rollout: dict[str, Any]) -> None:
        """Put a rollout into the queue, for the trainer."""
        self.save(self.queue / name, rollout)

    def waiting(self) -> list[str]:
        """Names of the rollouts in the queue, the oldest weights first."""
        return sorted(path.name for path in self.queue.glob("*.pt"))

    def get(self, name: str) -> Optional[dict[str, Any]]:
        """A rollout, or `None` if it cannot be read. That is no reason to stop."""
        with suppress(OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError):
            rollout: dict[str, Any] = torch.load(self.queue / name, weights_only=True)
            return rollout
        return None

    def remove(self, names: set[str]) -> None:
        for name in names:
            (self.queue / name).unlink(missing_ok=True)

    def is_over(self) -> bool:
        """Tell whether the trainer wants no more rollouts."""
        return (self.place / "over").exists()

    def set_over(self, is_over: bool) -> None:
        if is_over:
            (self.place / "over").touch()
        else:
            (self.place / "over").unlink(missing_ok=True)

    def set_wish(self, workers: int) -> None:
        draft = self._drafts / f"wish.{secrets.token_hex(4)}"
        draft.write_text(f"{workers}\n")
        draft.replace(self.place / "wish")

    def wish(self) -> int:
        """The wish, 0 if there is no file."""
        with suppress(OSError, ValueError):
            return int((self.place / "wish").read_text())
        return 0


def version_of(name: str) -> int:
    """The version of the weights that made a rollout."""
    return int(name.partition(".")[0])
