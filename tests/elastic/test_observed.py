"""What is seen of a training from outside of its script, and what is told of it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_hooks.elastic.agent.hit_cost import HitCost
from slurm_hooks.elastic.batch.job_comment import READ, loss_of, merged, standing, with_loss
from slurm_hooks.elastic.batch.standing import Standing, entry
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader
from slurm_hooks.elastic.observed import (
    MOST_S,
    SIZE,
    Loss,
    Observed,
    cost_of_hit,
    is_news,
    pack,
    unpack,
)
from slurm_hooks.elastic.script import observer as module
from slurm_hooks.elastic.script.observer import Observer

moments = st.floats(0, 1e9)


@given(st.builds(Observed, st.integers(0, 2**40), st.integers(0, 2**20), *[moments] * 4))
def test_what_a_worker_writes_is_what_the_agent_reads(seen: Observed) -> None:
    assert len(pack(seen)) == SIZE
    assert unpack(pack(seen)) == seen


def test_what_is_nothing_of_ours_is_nothing() -> None:
    whole = pack(Observed(3, 1, 0.5, 9.0, 8.0, 7.0))
    assert unpack(b"\0" * SIZE) is unpack(whole[:-1]) is unpack(b"") is None
    assert unpack(whole[:8] + b"x" + whole[9:]) is None
    assert unpack(pack(Observed(step_s=math.nan))) is unpack(pack(Observed(step_s=-1))) is None


@pytest.mark.parametrize(
    ("workers", "watches", "cost"),
    [
        ([], False, None),
        ([Observed(steps=9, step_s=1.0, stepped_at=1e6)], False, None),  # no checkpoint was seen
        ([Observed(9, 1, 0.1, stepped_at=700.0, saved_at=100.5, widest_s=60.0)], False, 600),
        ([Observed(9, 3, 0.1, stepped_at=120.0, saved_at=100.0, widest_s=61.2)], False, 62),
        ([Observed(9, 1, 0.1, stepped_at=99.0, saved_at=100.0)], False, 1),  # no step since
        ([Observed(9, 1, 0.1, stepped_at=1e9)], False, MOST_S),
        ([Observed(9, 1, 0.1, stepped_at=700.0, saved_at=100.0)], True, 1),
        ([Observed(9, 0, 3.4)], True, 4),  # the step under way
        ([], True, 1),
    ],
)
def test_a_hit_costs_what_is_done_again(
    workers: list[Observed], watches: bool, cost: int | None
) -> None:
    assert cost_of_hit(workers, watches) == cost


def test_little_changes_are_no_news() -> None:
    assert is_news(None, Loss(1))
    assert not is_news(Loss(1), Loss(2))
    assert not is_news(Loss(600), Loss(601))
    assert is_news(Loss(600), Loss(1000))
    assert is_news(Loss(600), Loss(1))
    assert is_news(Loss(600), Loss(600, redoes=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("trained{3}", "trained{3};h{600}"),
        ("trained{3};mine", "trained{3};h{600};mine"),
        ("trained{3};h{1};mine", "trained{3};h{600};mine"),
        ("joined{3};h{60000};progress{a=1}", "joined{3};h{600};progress{a=1}"),
        ("trained{3};myh{1}", "trained{3};h{600};myh{1}"),
        ("mine", "mine"),  # it does not begin with what the reconciler reads
        ("finished{999999999}", "finished{999999999}"),  # nobody would read it
    ],
)
def test_what_a_hit_costs_is_behind_where_it_stands(before: str, after: str) -> None:
    assert with_loss(before, Loss(600)) == after
    told_more = with_loss(before, Loss(600, redoes=True))
    assert told_more == after.replace("h{600}", "h{600}r")
    assert with_loss(told_more, Loss(600)) == after


losses = st.builds(Loss, st.integers(0, MOST_S), st.booleans())


@given(st.sampled_from(Standing), st.integers(0, 9999), losses)
def test_it_is_read_whatever_is_written_meanwhile(told: Standing, run: int, loss: Loss) -> None:
    text = with_loss(merged("mine", entry(Standing.STARTED, run)), loss)
    for word in (entry(told, run), "progress{a=1}", "remark{so}"):
        text = merged(text, word)
    assert standing(text) == entry(told, run)
    assert loss_of(text[:READ]) == loss
    assert text.endswith(";mine;progress{a=1};remark{so}")


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
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def optimizer(size: int) -> Any:
    tensor = SimpleNamespace(numel=lambda: size, element_size=lambda: 1)
    return SimpleNamespace(param_groups=[{"params": [tensor]}])


def test_steps_and_ages_are_counted(clock: Clock, mailbox: Mailbox) -> None:
    seen, one = Observer(), optimizer(1000)
    seen.see_saved(clock.now)  # before the first step: nothing to resume from
    for step in range(100):
        seen.see_step(one)
        clock.now += 0.5
        if step == 59:
            seen.see_saved(clock.now - 0.25, 2000)
            seen.see_saved(clock.now, 249)  # too small
    (told,) = mailbox.observed()
    assert (told.steps, told.saves, told.step_s) == (99, 1, 0.5)
    assert told.widest_s == 30.0
    assert told.age_s == pytest.approx(19.25)
    assert cost_of_hit([told], False) == 30


def test_of_several_optimizers_the_first_is_counted_as_long_as_it_steps(
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


def test_a_broken_mailbox_is_no_harm(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "no number")
    monkeypatch.setenv("MALLEABLE_BOARD", "1:2:3")
    seen = Observer()
    seen.see_step(object())
    seen.see_saved(clock.now, 5)
    assert (seen.seen.steps, seen.seen.saves) == (1, 1)


def test_a_forked_process_is_another(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observer()
    seen.see_step(optimizer(1))
    monkeypatch.setattr(module.os, "getpid", lambda: 0)
    seen.see_saved(clock.now, 5)
    assert seen.seen.saves == 0


class Slurm:
    """Takes note of what it is told."""

    def __init__(self) -> None:
        self.told_loss: Loss | None = None
        self.words: list[int] = []

    def report_loss(self, loss: Loss) -> None:
        self.words.append(loss.seconds)
        self.told_loss = loss


def test_slurm_is_told_news_once_a_minute_at_most(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    hits: Any = HitCost(mailbox, slurm)  # type: ignore[arg-type]
    hits.look(100.0)
    assert slurm.words == []
    for now in range(101, 700):
        reader.write_observed(Observed(9, 1, 0.1, stepped_at=float(now), saved_at=100.0))
        hits.look(float(now))
    assert slurm.words == [5, 65, 125, 190, 290, 440]  # it grows, so ever more seldom
    reader.write_watched(True)
    hits.look(760.0)
    assert slurm.words[-1] == 1


def test_planned_changes_cost_as_much_where_nobody_hears_of_them(mailbox: Mailbox) -> None:
    slurm, reader = Slurm(), MailboxReader(os.environ)
    hits: Any = HitCost(mailbox, slurm)  # type: ignore[arg-type]
    reader.write_observed(Observed(9, 1, 0.1, stepped_at=400.0, saved_at=100.0))
    hits.look(100.0)
    assert slurm.told_loss == Loss(300, redoes=True)
    reader.listen()
    hits.look(200.0)
    assert slurm.told_loss == Loss(300)
    mailbox.clear()  # a new round, in which nobody has asked yet
    reader.write_observed(Observed(9, 1, 0.1, stepped_at=400.0, saved_at=100.0))
    reader.write_watched(True)
    hits.look(300.0)
    assert slurm.told_loss == Loss(1)


def test_where_others_keep_the_state_a_hit_costs_a_step(mailbox: Mailbox) -> None:
    slurm = Slurm()
    hits: Any = HitCost(mailbox, slurm, True)  # type: ignore[arg-type]
    MailboxReader(os.environ).write_observed(Observed(9, 1, 2.5, stepped_at=900.0, saved_at=100.0))
    for now in range(1, 70):
        hits.look(float(now))
    assert slurm.words == [3]


def test_without_a_mailbox_nothing_is_told(tmp_path: Path) -> None:
    HitCost(None, None).look(1.0)  # type: ignore[arg-type]
