"""A training's position in an epoch, with samples dealt out to changing numbers of processes."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from torch.utils.data import DistributedSampler

from slurm_hooks.elastic.frameworks.lightning_position import Position

pytestmark = [pytest.mark.torch]


class Trainer:
    """The parts of Lightning's Trainer that a position uses: a data connector, and the
    loops' progress.
    """

    def __init__(self, samples: int, world: int, rank: int, batch: int) -> None:
        self.world, self.rank, self.training = world, rank, True
        self.samples, self.loader = samples, SimpleNamespace(batch_size=batch)
        self._data_connector = SimpleNamespace(_resolve_sampler=self.resolve)
        self.num_training_batches = math.ceil(math.ceil(samples / world) / batch)
        current = SimpleNamespace(ready=0, started=0, processed=0, completed=0)
        self.progress = SimpleNamespace(current=current, is_last_batch=False)
        epoch = SimpleNamespace(current=SimpleNamespace(processed=3))
        self.fit_loop = SimpleNamespace(
            epoch_loop=SimpleNamespace(batch_progress=self.progress), epoch_progress=epoch
        )

    def resolve(self, dataloader: Any, shuffle: bool, mode: Any = None) -> Any:
        sampler: Any = DistributedSampler(
            range(self.samples), self.world, self.rank, shuffle=shuffle, seed=5
        )
        sampler.set_epoch(3)
        return sampler

    def sampler(self) -> Any:
        return self._data_connector._resolve_sampler(self.loader, True)


def train(samples: int, world: int, batch: int, steps: int, state: dict[str, Any]) -> Any:
    """Train a round. Return the samples of all processes in so many steps, and the state
    after them.
    """
    learnt: list[int] = []
    for rank in range(world):
        trainer, position = Trainer(samples, world, rank, batch), Position()
        position.load_state_dict(state)
        position.place_sampler(trainer)
        mine = list(trainer.sampler())
        position.place_loop(trainer)
        learnt += mine[: steps * batch]
        for _ in range(steps):
            position.advance(trainer)
    return learnt, position.state_dict(), trainer


@pytest.mark.parametrize("worlds", [(2, 3, 1), (1, 2, 4), (3, 3, 2), (4, 1, 3)])
def test_an_epoch_of_changing_sizes_has_each_sample_once(worlds: tuple[int, ...]) -> None:
    learnt: list[int] = []
    state: dict[str, Any] = {}
    for world, steps in zip(worlds, (20, 13, 37)):
        more, state, _ = train(840, world, 12 // world, steps, state)
        learnt += more
    assert Counter(learnt) == Counter(range(840))


@pytest.mark.parametrize(("world", "batch"), [(4, 5), (3, 7), (1, 5)])
def test_batches_are_counted_by_the_size_of_this_round(world: int, batch: int) -> None:
    _, state, _ = train(1000, 2, 5, 42, {})
    assert state == {"samples": 420, "is_last": False}
    trainer = train(1000, world, batch, 0, state)[2]
    done = 420 // (world * batch)
    assert vars(trainer.progress.current) == {
        "ready": done,
        "started": done,
        "processed": done,
        "completed": done - 1,
    }


def test_at_the_end_of_an_epoch_the_next_is_whole() -> None:
    trainer, position = Trainer(1000, 2, 0, 5), Position()
    position.load_state_dict({"samples": 990, "is_last": False})
    position.place_sampler(trainer)
    trainer.sampler()
    trainer.progress.is_last_batch = True
    position.advance(trainer)
    state = position.state_dict()
    assert state == {"samples": 1000, "is_last": True}
    trainer, position = Trainer(1000, 4, 0, 5), Position()
    position.load_state_dict(state)
    position.place_sampler(trainer)
    assert len(list(trainer.sampler())) == 250
    position.place_loop(trainer)
    assert trainer.progress.current.processed == trainer.num_training_batches
    position.advance(trainer)
    assert position.done == 20


def test_the_remaining_samples_are_dealt_out_equally() -> None:
    lengths = set()
    for rank in range(4):
        trainer, position = Trainer(1001, 4, rank, 5), Position()
        position.load_state_dict({"samples": 420, "is_last": False})
        position.place_sampler(trainer)
        sampler = trainer.sampler()
        lengths.add(len(list(sampler)))
        sampler.set_epoch(4)
        assert len(list(sampler)) == len(sampler) == 251
    assert lengths == {146}


def test_a_sampler_of_the_script_is_left_alone() -> None:
    class Own(DistributedSampler[Any]):
        pass

    trainer, position = Trainer(1000, 2, 0, 5), Position()
    trainer._data_connector._resolve_sampler = lambda *_: Own(range(1000), 2, 0)
    position.load_state_dict({"samples": 420, "is_last": False})
    position.place_sampler(trainer)
    assert type(trainer.sampler()) is Own
    position.place_loop(trainer)
    assert trainer.progress.current.ready == 0
    assert position.state_dict() == {}
