"""Observations of a training from outside its script, and their reports."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.elastic.agent.interruption_cost import InterruptionCost
from slurm_hooks.elastic.farewell import note_whether_enough, was_too_short
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader
from slurm_hooks.elastic.observed import (
    SIZE,
    Observed,
    cost_of_interruption,
    is_news,
    pack,
    unpack,
)
from slurm_hooks.elastic.script import observation
from slurm_hooks.elastic.script import observer as module
from slurm_hooks.elastic.script.observer import Observer
from slurm_hooks.protocol.comment import MOST_LOSS_S, Loss

moments = st.floats(0, 1e9)


@given(st.builds(Observed, st.integers(0, 2**40), st.integers(0, 2**20), *[moments] * 4))
def test_the_agent_reads_the_words_of_a_worker(seen: Observed) -> None:
    assert len(pack(seen)) == SIZE
    assert unpack(pack(seen)) == seen


def test_foreign_content_is_ignored() -> None:
    whole = pack(Observed(3, 1, 0.5, 9.0, 8.0, 7.0))
    assert unpack(b"\0" * SIZE) is unpack(whole[:-1]) is unpack(b"") is None
    assert unpack(whole[:8] + b"x" + whole[9:]) is None
    assert unpack(pack(Observed(step_s=math.nan))) is unpack(pack(Observed(step_s=-1))) is None


@pytest.mark.parametrize(
    ("workers", "lag_s", "cost"),
    [
        ([], math.inf, None),
        ([Observed(steps=9, step_s=1.0, stepped_at=1e6)], math.inf, None),  # no checkpoint was seen
        ([Observed(9, 1, 0.1, stepped_at=700.0, saved_at=100.5, widest_s=60.0)], math.inf, 600),
        ([Observed(9, 3, 0.1, stepped_at=120.0, saved_at=100.0, widest_s=61.2)], math.inf, 62),
        ([Observed(9, 1, 0.1, stepped_at=99.0, saved_at=100.0)], math.inf, 1),  # no step since
        ([Observed(9, 1, 0.1, stepped_at=1e9)], math.inf, MOST_LOSS_S),
        ([Observed(9, 1, 0.1, stepped_at=700.0, saved_at=100.0)], 0.0, 1),
        ([Observed(9, 0, 3.4)], 0.0, 4),  # the step under way
        ([], 0.0, 1),
        ([Observed(9, 0, 3.4)], 30.5, 34),  # and the time between two copies
    ],
)
def test_an_interruption_costs_the_repeated_work(
    workers: list[Observed], lag_s: float, cost: int | None
) -> None:
    assert cost_of_interruption(workers, lag_s) == cost


def test_little_changes_are_no_news() -> None:
    assert is_news(None, Loss(1))
    assert not is_news(Loss(1), Loss(2))
    assert not is_news(Loss(600), Loss(601))
    assert is_news(Loss(600), Loss(1000))
    assert is_news(Loss(600), Loss(1))
    assert is_news(Loss(600), Loss(600, redoes=True))


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    mailbox = Mailbox()
    for name, value in mailbox.environment().items():
        monkeypatch.setenv(name, value)
    return mailbox


def test_each_worker_has_its_place_and_a_new_round_forgets(mailbox: Mailbox) -> None:
    for seat in ("2", "0"):
        reader = MailboxReader({**os.environ, "LOCAL_RANK": seat})
        reader.write_observed(Observed(steps=int(seat)))
    reader.write_watched(True)
    assert [seen.steps for seen in mailbox.observed()] == [0, 2]
    assert mailbox.is_watched()
    mailbox.clear()
    assert mailbox.observed() == []
    assert not mailbox.is_watched()


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Optimizer(SimpleNamespace):
    """Supports weak references, as torch's does."""


def optimizer(size: int) -> Any:
    tensor = SimpleNamespace(numel=lambda: size, element_size=lambda: 1)
    return Optimizer(param_groups=[{"params": [tensor]}])


def test_steps_and_ages_are_counted(clock: Clock, mailbox: Mailbox) -> None:
    seen, one = Observer(), optimizer(1000)
    seen.see_saved(clock.now)  # before the first step there is no state to resume from
    for step in range(100):
        seen.see_step(one)
        clock.now += 0.5
        if step == 59:
            seen.see_saved(clock.now - 0.25, 2000)
            seen.see_saved(clock.now, 249)  # too small
    (record,) = mailbox.observed()
    assert (record.steps, record.saves, record.step_s) == (99, 1, 0.5)
    assert record.widest_s == 30.0
    assert record.age_s == pytest.approx(19.25)
    assert cost_of_interruption([record]) == 30


def test_the_first_of_several_optimizers_is_counted_as_long_as_it_steps(
    clock: Clock, mailbox: Mailbox
) -> None:
    seen, first, other = Observer(), optimizer(1), optimizer(1)
    for _ in range(module.ANOTHER):
        seen.see_step(first)
        seen.see_step(other)
        seen.see_step(other)
    seen.see_step(first)
    for _ in range(module.ANOTHER + 4):
        seen.see_step(other)
    assert seen.seen.steps == module.ANOTHER + 6


@pytest.mark.parametrize("called", [("notice",), ("report", "reached", "notice")])
def test_without_an_optimizer_calls_at_boundaries_are_steps(
    clock: Clock, mailbox: Mailbox, called: tuple[str, ...]
) -> None:
    seen = Observer()
    for step in range(100):
        for function in called[: 2 if step % 9 else 3]:
            seen.see_call(function)
        assert bool(mailbox.observed()) == (step > 0)  # the first step ends at the second call
        clock.now += 0.5
    seen.see_saved(clock.now, 1)  # unknown parameters, which this file need not be
    (record,), (speed,) = mailbox.observed(), mailbox.speeds().values()
    assert (record.steps, record.step_s, record.saves) == (99, 0.5, 0)
    assert (speed.first_at, speed.steps) == (1000.5, 0)


def test_calls_do_not_count_beside_an_optimizer(clock: Clock, mailbox: Mailbox) -> None:
    seen, one = Observer(), optimizer(1)
    for _ in range(100):
        seen.see_call("reached")
        seen.see_step(one)
        seen.see_call("notice")
        clock.now += 0.5
    (record,) = mailbox.observed()
    assert (record.steps, record.step_s) == (99, 0.5)


def test_an_optimizer_is_not_taken_for_a_freed_optimizer(clock: Clock, mailbox: Mailbox) -> None:
    """Python may give the second the address of the first."""
    seen = Observer()
    seen.see_step(optimizer(1))
    second = optimizer(1000)
    seen.see_step(second)
    seen.see_saved(clock.now, 249)  # too small for the second
    assert (seen.seen.steps, seen.seen.saves) == (2, 0)


def test_a_loader_is_not_taken_for_a_freed_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[int] = []
    monkeypatch.setattr(module.CleanTime, "draw", lambda _, source, *others: sources.append(source))
    seen, addresses = Observer(), set()
    for _ in range(20):
        loader = Loader(1)
        addresses.add(id(loader))
        seen.see_draw(loader, 1)
        seen.see_draw(loader, 1)
        del loader
    assert len(addresses) < 20
    assert sources[::2] == sources[1::2]
    assert all(one != next_one for one, next_one in zip(sources[::2], sources[2::2]))


def test_a_broken_mailbox_is_no_harm(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "no number")
    monkeypatch.setenv("MALLEABLE_MAILBOX", "1:2:3")
    seen = Observer()
    seen.see_step(Optimizer())
    seen.see_saved(clock.now, 5)
    assert (seen.seen.steps, seen.seen.saves) == (1, 1)


def test_a_forked_process_is_another(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observer()
    seen.see_step(optimizer(1))
    monkeypatch.setattr(module.os, "getpid", lambda: 0)
    seen.see_saved(clock.now, 5)
    assert seen.seen.saves == 0


def test_a_forked_process_does_not_report_for_the_training_process(
    clock: Clock, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, one = Observer(), optimizer(1)
    seen.see_step(one)
    (before,) = mailbox.observed()
    with monkeypatch.context() as forked:
        forked.setattr(module.os, "getpid", lambda: 0)
        for _ in range(10):
            clock.now += 0.5
            seen.see_step(one)
    assert mailbox.observed() == [before]
    clock.now += 5
    seen.see_step(one)
    assert mailbox.observed() != [before]


def test_a_process_forked_before_the_first_step_may_be_the_training_process(
    clock: Clock, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Observer()
    monkeypatch.setattr(module.os, "getpid", lambda: 5)
    seen.see_step(optimizer(1))
    assert len(mailbox.observed()) == 1


def test_our_own_calls_end_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, two threads step at the same moment."""
    hooks: list[Any] = []
    torch = SimpleNamespace(compiler=SimpleNamespace(is_compiling=lambda: False))
    monkeypatch.setattr(observation, "_observer", Observer())
    monkeypatch.setattr(Observer, "see_step", lambda *_: 1 / 0)
    observation._see_steps(
        SimpleNamespace(torch=torch, register_optimizer_step_post_hook=hooks.append)
    )
    hooks[0](object(), (), {})


class Loader:
    """Gives `batch` samples at a time, as torch's DataLoader does."""

    _index_sampler, _auto_collation = None, False

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def __next__(self) -> Any:
        return SimpleNamespace(shape=(self.batch, 3))


class Dispatcher:
    """As accelerate's dispatcher: the first of `state.num_processes` draws for all."""

    def __init__(self, index: int) -> None:
        self.state = SimpleNamespace(num_processes=4, process_index=index)

    def _fetch_batches(self, loader: Loader) -> Any:
        if self.state.process_index == 0:
            for _ in range(4):
                next(loader)
        return None, [{"x": SimpleNamespace(shape=(4 * loader.batch, 3))}, False]


@pytest.mark.parametrize("index", [0, 3])
def test_samples_drawn_by_a_process_for_all_are_divided(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    kinds = [type(kind.__name__, (kind,), {}) for kind in (Loader, Dispatcher)]
    kinds[0].__next__ = Loader.__next__  # type: ignore[attr-defined]
    kinds[1]._fetch_batches = Dispatcher._fetch_batches  # type: ignore[attr-defined]
    seen, one = Observer(), optimizer(1)
    monkeypatch.setattr(observation, "_observer", seen)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(is_grad_enabled=lambda: True))
    observation._see_draws(SimpleNamespace(_BaseDataLoaderIter=kinds[0]))
    observation._see_dispatched(SimpleNamespace(DataLoaderDispatcher=kinds[1]))
    dispatcher, loader = kinds[1](index), kinds[0](16)
    for _ in range(50):
        clock.now += 0.1
        dispatcher._fetch_batches(loader)
        seen.see_step(one)
    assert seen.speed.steps > 20
    assert seen.speed.samples == 16 * seen.speed.steps


class Slurm:
    """Records the reports."""

    def __init__(self) -> None:
        self.told_loss: Loss | None = None
        self.words: list[int | None] = []

    def report_loss(self, loss: Loss | None) -> None:
        self.words.append(loss.seconds if loss else None)
        self.told_loss = loss


def test_slurm_gets_news_once_a_minute_at_most(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    interruptions.look(100.0)
    assert slurm.words == []
    for now in range(101, 700):
        reader.write_observed(Observed(9, 1, 0.1, stepped_at=float(now), saved_at=100.0))
        interruptions.look(float(now))
    assert slurm.words == [5, 65, 125, 190, 290, 440]  # it grows, so ever more seldom
    reader.write_watched(True)
    interruptions.look(760.0)
    assert slurm.words[-1] == 1


def look(interruptions: Any, seconds: range, seen: Observed, is_first: bool = True) -> None:
    for now in seconds:
        MailboxReader(os.environ).write_observed(seen)
        interruptions.look(float(now), is_first)


STEPS = Observed(9, step_s=0.1, stepped_at=100.0, saved_at=100.0)


def test_an_outdated_report_is_withdrawn(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_watched(True)
    look(interruptions, range(100, 110), STEPS)
    mailbox.clear()  # a new round, which takes its time to begin
    for now in range(110, 190):
        interruptions.look(float(now))
    look(interruptions, range(190, 195), STEPS)
    reader.write_watched(True)
    look(interruptions, range(195, 200), STEPS)
    assert slurm.words == [1]
    reader.write_watched(False)  # the cost is unknown now
    look(interruptions, range(200, 240), STEPS)
    assert slurm.words == [1, None]
    reader.write_watched(True)
    look(interruptions, range(300, 310), STEPS)
    reader.write_watched(False)
    look(interruptions, range(400, 420), replace(STEPS, saves=1, widest_s=70.0))
    assert slurm.words == [1, None, 1, 70]


@pytest.mark.parametrize(("before_s", "words"), [(1, [None]), (600, []), (None, [])])
def test_a_report_of_an_earlier_run_counts_until_it_is_outdated(
    mailbox: Mailbox, before_s: int | None, words: list[int | None]
) -> None:
    slurm = Slurm()
    slurm.told_loss = None if before_s is None else Loss(before_s)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    look(interruptions, range(100, 130), STEPS)  # no state is watched, and no checkpoint was seen
    assert slurm.words == words


def test_an_agent_that_is_no_longer_the_first_withdraws_its_report(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_watched(True)
    look(interruptions, range(100, 110), STEPS)
    look(interruptions, range(110, 200), STEPS, is_first=False)
    assert slurm.words == [1]
    reader.write_watched(False)
    look(interruptions, range(200, 220), replace(STEPS, saves=1, widest_s=70.0), is_first=False)
    assert slurm.words == [1, None]


@pytest.mark.parametrize(("copy_s", "file_s", "cost"), [(0.5, 1.4, 1), (0.5, 1.6, 70), (3, 0, 70)])
def test_a_state_with_a_longer_copy_than_the_farewell_costs_its_checkpoint_age(
    mailbox: Mailbox, copy_s: float, file_s: float, cost: int
) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_copy_s(copy_s)
    reader.write_file_s(file_s)
    mailbox.clear()
    reader.write_watched(True)
    look(interruptions, range(100, 110), replace(STEPS, saves=1, widest_s=70.0))
    assert slurm.words == [cost]


def test_the_time_between_two_copies_is_reported_and_withdrawn(mailbox: Mailbox) -> None:
    """Where a process may end without a signal, no state is kept until the first copy."""
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_lag_s(math.inf)
    reader.write_watched(True)
    look(interruptions, range(100, 105), STEPS)
    assert slurm.words == []
    reader.write_lag_s(29.5)
    look(interruptions, range(105, 110), STEPS)
    assert slurm.words == [30]
    mailbox.clear()
    assert mailbox.lag_s() == 0.0
    reader.write_lag_s(29.5)
    reader.write_watched(True)
    look(interruptions, range(110, 200), STEPS)
    assert slurm.words == [30]
    reader.write_lag_s(math.inf)  # the next copy had no room
    look(interruptions, range(200, 220), STEPS)
    assert slurm.words == [30, None]


@pytest.mark.parametrize(("farewell", "costs"), [("2", []), ("3", [1])])
def test_a_farewell_that_was_too_short_is_so_in_the_next_life_too(
    mailbox: Mailbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, farewell: str, costs: Any
) -> None:
    monkeypatch.setenv("PET_RDZV_ENDPOINT", str(tmp_path))
    monkeypatch.setenv("MALLEABLE_FAREWELL_S", "2")
    note_whether_enough(os.environ, False)
    monkeypatch.setenv("MALLEABLE_FAREWELL_S", farewell)
    slurm = Slurm()
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    MailboxReader(os.environ).write_watched(True)
    look(interruptions, range(100, 110), STEPS)
    assert slurm.words == costs
    note_whether_enough(os.environ, True)
    assert not was_too_short(os.environ)


def test_planned_changes_cost_as_much_where_no_process_hears_of_them(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    interruptions: Any = InterruptionCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_observed(Observed(9, 1, 0.1, stepped_at=400.0, saved_at=100.0))
    interruptions.look(100.0)
    assert slurm.told_loss == Loss(300, redoes=True)
    reader.listen()
    interruptions.look(200.0)
    assert slurm.told_loss == Loss(300)
    mailbox.clear()  # a new round, in which no process has asked yet
    reader.write_observed(Observed(9, 1, 0.1, stepped_at=400.0, saved_at=100.0))
    reader.write_watched(True)
    interruptions.look(300.0)
    assert slurm.told_loss == Loss(1)


def test_where_others_keep_the_state_an_interruption_costs_a_step(mailbox: Mailbox) -> None:
    slurm = Slurm()
    interruptions: Any = InterruptionCost(mailbox, slurm, True)  # type: ignore[arg-type]
    MailboxReader(os.environ).write_observed(Observed(9, 1, 2.5, stepped_at=900.0, saved_at=100.0))
    for now in range(1, 70):
        interruptions.look(float(now))
    assert slurm.words == [3]


def test_without_a_mailbox_there_is_no_report(tmp_path: Path) -> None:
    InterruptionCost(None, None).look(1.0)  # type: ignore[arg-type]
