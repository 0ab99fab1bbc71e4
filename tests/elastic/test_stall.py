"""A training that makes no step is reported once, and the report is withdrawn when steps go on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_hooks.elastic.agent import stall
from slurm_hooks.elastic.agent.stall import Pace, StallReports, sentence
from slurm_hooks.elastic.engines.torchrun.cold_worker import PROGRAM
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.speed import Speed
from waiting import wait_until

LOOK_S = 2.0


class Training:
    """Workers that step or stand still, and an agent that checks them every two seconds."""

    def __init__(self, step_s: float) -> None:
        self.pace, self.step_s = Pace(), step_s
        self.now = self.stepped_at = 1000.0
        self.is_observed = True

    def look(self) -> bool:
        """Tell whether the agent sees a stall."""
        worker = Observed(steps=9, step_s=self.step_s, stepped_at=self.stepped_at)
        seen = [worker, Observed(stepped_at=1.0)]
        return self.pace.see(self.now, seen, awaits_first=self.is_observed) is not None

    def steps(self, seconds: float) -> None:
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            self.stepped_at = self.now - 0.1
            assert not self.look()

    def stands(self, seconds: float) -> float:
        """The length of the standstill when the stall was seen, 0 if it was not."""
        began = self.now
        for _ in range(int(seconds / LOOK_S)):
            self.now += LOOK_S
            if self.look():
                return self.now - began
        return 0.0


@pytest.mark.parametrize(
    ("step_s", "seconds"), [(0.4, 60.0), (6.0, 60.0), (20.0, 200.0), (0.0, 0.0)]
)
def test_a_stall_is_ten_usual_steps_long_and_a_minute_at_least(
    step_s: float, seconds: float
) -> None:
    training = Training(step_s)
    training.steps(60)
    assert training.stands(1000) == pytest.approx(seconds, abs=2 * LOOK_S)


def test_a_standstill_that_ended_by_itself_is_known_from_then_on() -> None:
    """For example, an evaluation after each epoch is reported once, not each time."""
    training = Training(0.4)
    reports = 0
    for _ in range(5):
        training.steps(300)
        reports += bool(training.stands(120))
        training.stands(120)
    assert reports == 1
    training.steps(300)
    assert training.stands(2000) > 300


def test_workers_of_a_new_round_get_the_time_to_make_their_first_step() -> None:
    training = Training(0.4)
    training.steps(60)
    assert not training.stands(50)
    training.now += 600.0  # below its minimum the job has no workers to check
    training.pace.begin_round(2)
    assert training.stands(1000) == pytest.approx(120.0, abs=2 * LOOK_S)
    training.steps(60)
    assert training.stands(1000) == pytest.approx(240.0, abs=2 * LOOK_S)  # twice that start


def test_a_first_round_without_a_step_is_reported_if_a_step_could_be_seen() -> None:
    pace = Pace()
    pace.begin_round(1)
    for now in range(10, 1000, 2):  # not observed, or a report() counts as its step
        assert pace.see(now, []) is None
    assert pace.see(1000, [], awaits_first=True) == stall.Stall(990, unstepped=1)


def test_an_agent_that_was_suspended_itself_reports_no_stall() -> None:
    training = Training(0.4)
    training.steps(60)
    training.now += 3600.0
    assert not training.look()


@pytest.mark.parametrize(
    ("usual_s", "text"), [(0.413, "0.41"), (123.4, "120"), (0.00123, "0.0012")]
)
def test_a_stall_is_described_with_its_begin_and_the_usual_step(usual_s: float, text: str) -> None:
    line = sentence("2026-11-25 04:12 (63 s)", stall.Stall(63.4, usual_s))
    assert line == f"no step since 2026-11-25 04:12 (63 s), usually one every {text} s"


def test_a_round_without_a_step_is_stated_as_a_fact() -> None:
    line = sentence("2026-11-25 04:12 (120 s)", stall.Stall(120.4, unstepped=3))
    assert line == "in round 3 since 2026-11-25 04:12 (120 s), no step seen yet"


class Slurm:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.remarks: list[str] = []
        monkeypatch.setattr(stall, "write_remark", self.remarks.append)
        monkeypatch.setattr(stall, "withdraw_remark", self.remarks.remove)


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Slurm:
    return Slurm(monkeypatch)


def test_a_stall_is_reported_once_and_withdrawn(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    mailbox = Mailbox()
    worker, reports = MailboxReader(mailbox.environment()), StallReports(mailbox)
    now = time.monotonic()
    worker.write_observed(Observed(steps=9, step_s=0.4, stepped_at=now))
    for _ in range(100):
        now += LOOK_S
        reports.look(now, tells=True)
    assert len(slurm.remarks) == 1
    assert " s)" not in slurm.remarks[0], "it would soon be wrong"
    worker.write_observed(Observed(steps=10, step_s=0.4, stepped_at=now))
    reports.look(now + LOOK_S, tells=True)
    assert not slurm.remarks
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("malleable: no step since ")
    assert first.endswith(", usually one every 0.4 s")
    assert second == "malleable: steps go on after 202 s"


@pytest.mark.parametrize("ends", ["leaves", "is not the first any more"])
def test_an_agent_that_leaves_withdraws_its_report(slurm: Slurm, ends: str) -> None:
    mailbox = Mailbox()
    reports = StallReports(mailbox)
    now = time.monotonic()
    seen = Observed(steps=9, step_s=0.4, stepped_at=now)
    MailboxReader(mailbox.environment()).write_observed(seen)
    for _ in range(40):
        now += LOOK_S
        reports.look(now, tells=True)
    assert slurm.remarks
    if ends == "leaves":
        reports.withdraw()
    else:
        reports.look(now + LOOK_S, tells=False)
    assert not slurm.remarks


def test_a_first_step_withdraws_the_report_and_a_new_round_does_so_without_a_word(
    slurm: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    mailbox = Mailbox()
    worker, reports = MailboxReader(mailbox.environment()), StallReports(mailbox)
    now = time.monotonic()

    def stands() -> None:
        nonlocal now
        worker.write_speed(Speed())  # as each observed worker does when it begins
        for _ in range(70):
            now += LOOK_S
            reports.look(now, tells=True)

    reports.begin_round(1)
    stands()
    assert slurm.remarks[0].startswith("in round 1 since ")
    reports.begin_round(2)
    reports.look(now + LOOK_S, tells=True)
    assert not slurm.remarks
    stands()
    worker.write_observed(Observed(steps=1, stepped_at=now))
    worker.write_speed(Speed(first_at=now))
    reports.look(now + LOOK_S, tells=True)
    assert not slurm.remarks
    first, second, third = capsys.readouterr().err.splitlines()
    assert "in round 1 since" in first
    assert "in round 2 since" in second
    assert third.startswith("malleable: steps go on after 1")


STANDS = """
import os, time, torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
while not os.path.exists("begin"):
    time.sleep(0.1)
for _ in range(60):
    step()
while not os.path.exists("go-on"):
    time.sleep(0.1)
while not os.path.exists("end"):
    step()
"""


@pytest.mark.torch
def test_a_real_worker_that_stops_stepping(
    tmp_path: Path,
    slurm: Slurm,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(stall, "LEAST_S", 2.0)
    monkeypatch.setattr(stall, "FIRST_S", 2.0)
    mailbox = Mailbox()
    reports = StallReports(mailbox, look_s=0.2)
    reports.begin_round(7)
    script = tmp_path / "train.py"
    script.write_text(STANDS)
    here = str(Path(__file__).resolve().parents[2])
    env = {**os.environ, **mailbox.environment(), "PYTHONPATH": here}
    words = [sys.executable, "-c", PROGRAM, str(script)]
    with subprocess.Popen(words, env=env, cwd=tmp_path) as worker:
        try:
            look = lambda: reports.look(time.monotonic(), tells=True)  # noqa: E731
            for file in ("begin", "go-on"):
                wait_until(lambda: look() or slurm.remarks)
                (tmp_path / file).touch()
                wait_until(lambda: look() or not slurm.remarks)
            (tmp_path / "end").touch()
            assert worker.wait(timeout=60) == 0
        finally:
            worker.kill()
    first, *others, last = capsys.readouterr().err.splitlines()
    assert first.startswith("malleable: in round 7 since ")
    assert any(", usually one every 0.0" in line for line in others)
    assert all(line.startswith("malleable: steps go on after ") for line in (others[0], last))
