"""The samples that a process takes at a step, when the number of processes changes.

The global batch of a step depends on the step alone. So a training that resumes at the step it had
reached loses no sample and takes none twice, whatever its size before and after. Pure, standard
library only. Random access makes the resume free of cost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_MASK = (1 << 64) - 1
_ROUNDS = 4


def shuffled(position: int, samples: int, key: int) -> int:
    """Return the sample at `position` of a permutation of range(samples) chosen by `key`.

    It is an alternating Feistel network on just enough bits, walked until it is back in range
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
    """
    bits = max(2, (samples - 1).bit_length())
    high, low = bits // 2, bits - bits // 2
    while True:
        left, right = position >> low, position & ((1 << low) - 1)
        for turn in range(_ROUNDS):  # an even number: the widths change places each time
            width = low if turn % 2 else high
            left, right = right, left ^ (_mix(right + (turn << 40) ^ key) & ((1 << width) - 1))
        position = left << low | right
        if position < samples:
            return position


def _mix(number: int) -> int:
    """Steele, Lea and Flood's splitmix64 finaliser."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


class ElasticBatches:
    """For a DataLoader's `batch_sampler=`: the indices of this process, step by step.

    `samples`: size of the data set. `batch`: samples per step of all processes together. `steps`:
    steps of the whole training. `start`: steps done already. Rank and world size are torchrun's
    unless given.

    Epochs follow each other without a gap, so every batch is full, also at the start of an epoch.
    Shares differ by one sample at most, so scale the summed loss by world / batch. Raises
    ValueError for impossible numbers.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        steps: int,
        start: int = 0,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
    ) -> None:
        self.samples, self.batch, self.steps, self.start = samples, batch, steps, start
        self.seed = seed
        self.rank = int(os.environ.get("RANK", "0")) if rank is None else rank
        self.world = int(os.environ.get("WORLD_SIZE", "1")) if world is None else world
        if samples < 1:
            raise ValueError(f"samples={samples}: must be at least 1")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} is out of range for a world of {self.world}")
        if self.world > batch:
            raise ValueError(
                f"{self.world} processes share a batch of {batch}: some would get no samples; "
                "choose a larger batch or a smaller --malleable maximum"
            )

    def batch_of(self, step: int) -> list[int]:
        """The global batch of a step, the same in every process."""
        return [self._sample(index) for index in range(step * self.batch, (step + 1) * self.batch)]

    def share_of(self, step: int) -> list[int]:
        """Return this process's share of the batch."""
        indices = range(step * self.batch + self.rank, (step + 1) * self.batch, self.world)
        return [self._sample(index) for index in indices]

    def _sample(self, index: int) -> int:
        epoch, position = divmod(index, self.samples)
        return shuffled(position, self.samples, _mix(_mix(self.seed) + epoch))

    def __len__(self) -> int:
        """How many steps are left."""
        return max(0, self.steps - self.start)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield shares of this process from the step `start` on."""
        for step in range(self.start, self.steps):
            yield self.share_of(step)
