"""The position of a Lightning training in an epoch, counted in samples.

Lightning resumes in the middle of an epoch with the right number of batches done, but takes its
samples from the beginning of the epoch again. Its sampler deals the samples of an epoch out in
turn. So after any number of steps of any number of processes, the done samples are the head of a
permutation. Here the rest is dealt out again.

This holds only for a sampler that Lightning itself has made. A script's own sampler is left alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DistributedSampler

_CURRENT = ("ready", "started", "processed")


class Rest(DistributedSampler[Any]):
    """A DistributedSampler that in a single epoch begins after its first `done` samples."""

    done: int
    of_epoch: int

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of this process."""
        if self.epoch != self.of_epoch:
            return super().__iter__()
        whole: Any = DistributedSampler(
            self.dataset, 1, 0, shuffle=self.shuffle, seed=self.seed, drop_last=self.drop_last
        )
        whole.set_epoch(self.epoch)
        order = list(whole)
        left = order[self.done :]
        count = math.ceil(len(left) / self.num_replicas) * self.num_replicas
        left += order[: count - len(left)]  # all processes take equally many, as always
        return iter(left[self.rank :: self.num_replicas])


class Position:
    """The position of a training: `done` samples of the epoch, or all of them."""

    def __init__(self) -> None:
        self.done = 0
        self.is_last = False
        self._batch = 0  # of all processes together; 0 if the script deals out the samples

    def state_dict(self) -> dict[str, Any]:
        """Return the state for Lightning's checkpoints and the copy in memory."""
        return {"samples": self.done, "is_last": self.is_last} if self._batch else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called before there are samplers."""
        self.done = int(state.get("samples", 0))
        self.is_last = bool(state.get("is_last", False))

    def place_sampler(self, trainer: Any) -> None:
        """Make the sampler that Lightning is about to create begin at the present position."""
        connector = trainer._data_connector
        plain = connector._resolve_sampler

        def resolve(dataloader: Any, shuffle: bool, mode: Any = None) -> Any:
            sampler = plain(dataloader, shuffle, mode)
            if type(sampler) is DistributedSampler and trainer.training:
                self._batch = (dataloader.batch_size or 0) * sampler.num_replicas
                self._begin_after(sampler, trainer)
            return sampler

        connector._resolve_sampler = resolve

    def _begin_after(self, sampler: Any, trainer: Any) -> None:
        # processes that draw batches ask for the first samples before Lightning sets the epoch
        sampler.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
        if self.done and not self.is_last and self._batch:
            sampler.__class__ = Rest
            sampler.done = self.done
            sampler.of_epoch = trainer.fit_loop.epoch_progress.current.processed

    def place_loop(self, trainer: Any) -> None:
        """Count batches of another number of processes as batches of this number."""
        progress = trainer.fit_loop.epoch_loop.batch_progress.current
        if not self._batch or not self.done:
            return
        batches = max(1, self.done // self._batch)
        if self.is_last:
            batches = int(trainer.num_training_batches)
        for name in _CURRENT:
            setattr(progress, name, batches)
        progress.completed = batches - 1  # Lightning itself counts the end of the last batch

    def advance(self, trainer: Any) -> None:
        """A further batch is done."""
        self.done = self._batch if self.is_last else self.done + self._batch
        self.is_last = bool(trainer.fit_loop.epoch_loop.batch_progress.is_last_batch)
