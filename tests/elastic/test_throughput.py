"""An agent's use of its workers' counts: rates by size, pauses, and its reports."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.elastic import speed as form
from slurm_hooks.elastic.agent import throughput as module
from slurm_hooks.elastic.agent.pauses import PauseWatch, fragment_began, kind_of
from slurm_hooks.elastic.agent.throughput import Throughput
from slurm_hooks.elastic.batch.progress_entry import Progress, ToldPauses, earlier, entry
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.rendezvous.causes import Cause, CauseKind, joined, left, lost
from slurm_hooks.elastic.rendezvous.state import Round
from slurm_hooks.elastic.script.observer import times_as_many
from slurm_hooks.elastic.speed import Speed

START = Cause(CauseKind.START)
FAILED = Cause(CauseKind.FAILED)
many = settings(deadline=None)
NUMBERS = st.floats(0, 1e12)


@many
@given(st.builds(Speed, *[NUMBERS] * 6, st.just(-1.0) | st.floats(0, 1)))
def test_the_agent_reads_the_words_of_a_worker(speed: Speed) -> None:
    assert len(form.pack(speed)) == form.SIZE
    assert form.unpack(form.pack(speed)) == (speed if any(form.pack(speed)) else None)


def test_foreign_content_is_ignored() -> None:
    whole = form.pack(Speed(1.0, 2.0, 3.0, 4.0))
    assert form.unpack(b"") is form.unpack(whole[:-1]) is form.unpack(b"\0" * form.SIZE) is None
    assert form.unpack(whole[:8] + bytes([whole[8] ^ 1]) + whole[9:]) is None
    for odd in (float("nan"), float("inf"), -1.0):
        assert form.unpack(form.pack(Speed(seconds=odd))) is None


class Slurm:
    """Records each report at once."""

    def __init__(self) -> None:
        self.told_progress: Optional[Progress] = None
        self.earlier_progress: Optional[Progress] = None
        self.words: list[Progress] = []

    def report_progress(self, progress: Progress) -> None:
        self.words.append(progress)
        self.told_progress = progress


class Gang:
    """The workers of a node, under a clock that the test moves."""

    def __init__(self, mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
        self.slurm, self.now = Slurm(), 5000.0
        self.mailbox = mailbox
        self.readers = [
            MailboxReader({**os.environ, **mailbox.environment(), "LOCAL_RANK": str(n)})
            for n in range(workers)
        ]
        self.speed = Speed()
        clock = SimpleNamespace(time=lambda: 1_790_000_000 + self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(module, "time", clock)
        self.agent: Any = Throughput(mailbox, self.slurm)  # type: ignore[arg-type]
        self.agent._pauses = PauseWatch(self.now)

    def begin(self, nodes: int, *causes: Cause, is_first: bool = False, workers: int = 0) -> None:
        order = tuple(f"{n:016x}" for n in range(nodes))
        round_ = Round(1, order, tuple(range(nodes)), "n1", 1, causes, 0, workers)
        self.agent.begin_round(round_, is_first)
        self.mailbox.clear()
        self.speed = Speed()

    def train(
        self,
        seconds: int,
        step_s: float,
        batch: float = 64.0,
        tells: bool = True,
        report: float = 0,
        times: float = 0,
    ) -> None:
        for _ in range(seconds):
            self.now += 1.0
            before = self.speed
            self.speed = Speed(
                before.first_at or self.now,
                before.seconds + 1.0,
                before.steps + 1.0 / step_s,
                before.samples + batch / step_s,
                report,
                times,
            )
            for reader in self.readers:
                reader.write_speed(self.speed)
                reader.write_observed(Observed(int(self.speed.steps), stepped_at=self.now))
            self.agent.look(self.now, tells)


@pytest.fixture
def gang(monkeypatch: pytest.MonkeyPatch) -> Gang:
    return Gang(Mailbox(), monkeypatch, 2)


def rates(gang: Gang) -> list[tuple[int, float, float]]:
    return [(r.nodes, round(r.per_s, 3), r.batch) for r in gang.slurm.words[-1].rates]


def test_rates_of_all_sizes_are_kept_over_rounds(gang: Gang) -> None:
    gang.begin(4, START, is_first=True)
    gang.train(6, 0.1)
    assert gang.slurm.words == []
    gang.train(12, 0.1)
    assert rates(gang) == [(4, 5120.0, 512.0)]
    gang.train(600, 0.1)
    assert len(gang.slurm.words) <= 3  # its error is smaller: the rate is confirmed
    gang.begin(8, joined(5))
    gang.train(20, 0.125)
    assert rates(gang) == [(4, 5120.0, 512.0), (8, 8192.0, 1024.0)]
    gang.begin(4, left(5))
    gang.train(100, 0.105)
    assert rates(gang) == [(8, 8192.0, 1024.0), (4, 4876.19, 512.0)]


def test_a_lasting_change_of_the_training_voids_the_other_sizes(gang: Gang) -> None:
    gang.begin(4, START, is_first=True)
    gang.train(20, 0.1)
    gang.begin(8, joined(5))
    gang.train(20, 0.125)
    gang.begin(4, left(5))
    gang.train(90, 0.2)  # so far it may be an accident
    assert rates(gang) == [(4, 5120.0, 512.0), (8, 8192.0, 1024.0)]
    gang.train(60, 0.2)
    assert rates(gang) == [(4, 2560.0, 512.0)]


def test_a_bad_minute_voids_no_rate(gang: Gang) -> None:
    gang.begin(4, START, is_first=True)
    gang.train(20, 0.1)
    gang.begin(8, joined(5))
    gang.train(20, 0.125)
    for _ in range(3):
        gang.train(60, 0.2)
        gang.train(60, 0.125)
    assert rates(gang) == [(4, 5120.0, 512.0), (8, 8192.0, 1024.0)]


@pytest.mark.parametrize("batches", ["33.3,99.9", "33.33,100"])
def test_a_bad_look_at_an_uneven_batch_voids_no_rate(gang: Gang, batches: str) -> None:
    """A third of the batch at three nodes is not exactly the batch at one."""
    one, three = batches.split(",")
    text = f"progress{{s1790000000,3:900/10/{three},1:320/10/{one}/60}}"
    gang.slurm.earlier_progress = earlier(text)
    gang.agent = Throughput(gang.mailbox, gang.slurm)  # type: ignore[arg-type]
    gang.begin(1, START, is_first=True)
    gang.train(30, 0.2, batch=float(one) / 2)
    gang.train(30, 0.1, batch=float(one) / 2)
    assert rates(gang)[0][0] == 3
    assert min(word.rates[-1].per_s for word in gang.slurm.words) > 300


def test_the_smallest_size_stays_in_the_report(gang: Gang) -> None:
    """All speed-ups are relative to a small size, so without it the rest would say nothing."""
    gang.begin(1, START, is_first=True)
    gang.train(20, 0.1)
    for nodes in (2, 3, 4, 5, 6):
        gang.begin(nodes, joined(nodes))
        gang.train(20, 0.1)
    assert [size for size, _, _ in rates(gang)] == [1, 4, 5, 6]


def test_a_fragment_that_starts_again_begins_with_its_own_rates(gang: Gang) -> None:
    gang.begin(1, START, is_first=True)
    gang.train(20, 0.1)
    gang.begin(2, joined(2))
    gang.train(20, 0.1)
    before = rates(gang)
    gang.slurm.earlier_progress = earlier(entry(gang.slurm.words[-1]))
    gang.agent = Throughput(gang.mailbox, gang.slurm)  # type: ignore[arg-type]
    gang.begin(4, START, is_first=True)
    gang.train(20, 0.1)
    assert rates(gang) == [*before, (4, 5120.0, 512.0)]


@pytest.mark.parametrize(
    ("processes", "times"),
    [
        (1, 4 / 1),  # 1 + 3 workers, a process each, seen at the first node
        (3, 4 / 3),  # the same round, seen at the second
        (1, 2 / 1),  # a single process on each node, whatever Slurm gave it
    ],
)
def test_a_rate_is_reported_at_the_workers_of_unequal_fragments(
    monkeypatch: pytest.MonkeyPatch, processes: int, times: float
) -> None:
    gang = Gang(Mailbox(), monkeypatch, processes)
    gang.begin(2, START, is_first=True, workers=4)
    gang.train(18, 0.1, batch=10, times=times)
    batch = 10 * processes * times
    assert rates(gang) == [(4, 10 * batch, batch)]


def test_without_samples_steps_are_reported_by_the_workers(gang: Gang) -> None:
    gang.begin(2, START, is_first=True, workers=4)
    gang.train(18, 0.1, batch=0, times=2)
    assert rates(gang) == [(4, 40.0, 0.0)]


@pytest.mark.parametrize(
    ("env", "times"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "3"}, 4 / 3),
        ({"WORLD_SIZE": "4"}, 0.0),
        ({"WORLD_SIZE": "x", "LOCAL_WORLD_SIZE": "3"}, 0.0),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "0"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_process_has_the_number_of_other_processes(env: dict[str, str], times: float) -> None:
    assert times_as_many(env) == times


def test_a_changed_batch_is_reported_within_a_minute(gang: Gang) -> None:
    gang.begin(1, START, is_first=True)
    gang.train(200, 0.1, batch=32)
    words = len(gang.slurm.words)
    gang.train(30, 0.1, batch=64)
    assert len(gang.slurm.words) > words
    assert rates(gang) == [(1, 1280.0, 128.0)]


def test_unequal_batches_are_a_single_batch(gang: Gang) -> None:
    gang.begin(1, START, is_first=True)
    gang.train(60, 0.1, batch=32)
    gang.begin(2, joined(2))
    gang.train(60, 0.1, batch=33)
    assert [r.batch for r in gang.slurm.words[-1].rates] == [64.0, 128.0]
    gang.begin(4, joined(3), joined(4))
    gang.train(60, 0.1, batch=16.5)  # the common batch of all is kept
    assert [r.batch for r in gang.slurm.words[-1].rates] == [64.0, 128.0, 128.0]


def test_a_changed_speed_is_reported_when_it_has_lasted(gang: Gang) -> None:
    gang.begin(1, START, is_first=True)
    gang.train(200, 0.1)
    gang.train(60, 0.2)
    assert rates(gang) == [(1, 1280.0, 128.0)]
    gang.train(90, 0.2)
    assert rates(gang) == [(1, 640.0, 128.0)]
    words = len(gang.slurm.words)
    gang.train(900, 0.2)
    assert len(gang.slurm.words) <= words + 1


def test_without_samples_steps_are_reported(gang: Gang) -> None:
    gang.begin(4, START, is_first=True)
    gang.train(30, 0.1, batch=0.0)
    assert rates(gang) == [(4, 40.0, 0.0)]
    assert not gang.slurm.words[-1].in_samples
    gang.train(60, 0.1, batch=8.0)
    assert rates(gang) == [(4, 640.0, 64.0)]
    assert gang.slurm.words[-1].in_samples


def test_reports_of_a_script_count(gang: Gang) -> None:
    gang.begin(4, START, is_first=True)
    gang.train(30, 0.1, batch=7.0, report=1000.0)
    assert rates(gang) == [(4, 10_000.0, 1000.0)]


def test_only_rank_0_reports_and_a_new_rank_0_has_the_earlier_sizes(gang: Gang) -> None:
    gang.begin(8, START, is_first=True)
    gang.train(60, 0.1, tells=False)
    assert gang.slurm.words == []
    gang.begin(4, left(0))
    gang.train(30, 0.1)
    assert [rate.nodes for rate in gang.slurm.words[-1].rates] == [8, 4]


def test_pauses_are_reported(gang: Gang) -> None:
    gang.now += 20
    gang.begin(2, START, is_first=True)
    gang.train(60, 0.1)
    for nodes, cause, pause_s in ((3, joined(2), 6), (2, left(2), 4), (1, lost(1), 9)):
        gang.now += pause_s
        gang.begin(nodes, cause)
        gang.train(60, 0.1)
    assert gang.slurm.words[-1].pauses == ToldPauses(21.0, 7.0, 5.0, 10.0)


def test_workers_that_are_slower_to_begin_or_end_are_no_harm(gang: Gang) -> None:
    gang.begin(2, START, is_first=True)
    gang.readers, all_ = gang.readers[:1], gang.readers
    gang.train(5, 0.1)
    gang.readers = all_
    gang.train(40, 0.1)
    assert rates(gang)[-1] == (2, 2560.0, 256.0)
    gang.speed = Speed()  # another training of the same script
    gang.train(40, 0.1)
    assert rates(gang)[-1] == (2, 2560.0, 256.0)


def test_without_a_mailbox_there_is_no_report() -> None:
    agent: Any = Throughput(None, None)  # type: ignore[arg-type]
    agent.begin_round(Round(1, ("a",), (0,), "n1", 1, (START,), 0), True)
    agent.look(1.0, True)


@pytest.mark.parametrize(
    ("causes", "is_first", "kind"),
    [
        ((START,), True, "start_s"),
        ((joined(1),), True, ""),  # others pause because of it
        ((joined(1), joined(2)), False, "grow_s"),
        ((left(1),), False, "shrink_s"),
        ((left(1), joined(2)), False, ""),
        ((left(1), lost(2)), False, "loss_s"),
        ((FAILED,), False, ""),
        ((), False, ""),
    ],
)
def test_the_kind_of_a_pause(causes: tuple[Cause, ...], is_first: bool, kind: str) -> None:
    assert kind_of(causes, is_first) == kind


def test_a_round_that_breaks_before_a_step_is_a_part_of_the_pause() -> None:
    pauses = PauseWatch(0.0)
    pauses.begin_round([joined(1)], 100.0, False)
    pauses.begin_round([joined(2)], 0.0, False)
    pauses.see([Speed(first_at=130.0)])
    assert pauses.pauses == ToldPauses(grow_s=30.0)
    pauses.begin_round([left(1)], 200.0, False)
    pauses.begin_round([lost(2)], 0.0, False)  # the length of either is unknown
    pauses.see([Speed(first_at=250.0)])
    assert pauses.pauses == ToldPauses(grow_s=30.0)


def test_a_pause_before_the_first_step_does_not_count_from_the_start_of_the_host() -> None:
    pauses = PauseWatch(500.0)
    pauses.begin_round([joined(1)], 0.0, True)
    pauses.begin_round([joined(2)], 0.0, False)
    pauses.see([Speed(first_at=560.0)])
    assert pauses.pauses == ToldPauses()


@many
@given(
    st.lists(
        st.tuples(
            st.sampled_from([START, joined(1), left(1), lost(1), FAILED]),
            st.floats(0, 1e9),
            st.floats(0, 1e9),
            st.booleans(),
        )
    )
)
def test_pauses_are_seconds(rounds: list[tuple[Cause, float, float, bool]]) -> None:
    pauses = PauseWatch(500.0)
    for cause, stepped_at, first_at, is_first in rounds:
        pauses.begin_round([cause], stepped_at, is_first)
        pauses.see([Speed(first_at=first_at)])
        seconds = vars(pauses.pauses).values()
        assert all(s is None or 0 <= s <= 9999 for s in seconds)


def test_the_start_of_a_fragment() -> None:
    now = time.monotonic()
    assert fragment_began({"SLURM_JOB_START_TIME": str(int(time.time()) - 50)}) < now - 40
    for text in ("", "soon", "0", str(int(time.time()) + 9999), "9" * 30):
        assert fragment_began({"SLURM_JOB_START_TIME": text}) >= now
