"""All messages of a fragment in its Comment go through a single writer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_hooks.elastic.batch import job_comment, remark
from slurm_hooks.elastic.batch.comment_writer import TURN_S, CommentWriter
from slurm_hooks.elastic.batch.own_element import OwnElement
from slurm_hooks.elastic.batch.progress_entry import Progress, ToldRate
from slurm_hooks.elastic.engines.pool.wish_file import WishFile
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.comment import Comment, Loss, Standing, Wish, parse
from waiting import wait_until

from .test_standing import ENV, asked, slurm

__all__ = ["slurm"]  # a fixture
RATE = ToldRate(4, 1000.0, 0.01, 1_790_000_000, 64.0)


@pytest.fixture
def element(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> OwnElement:
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)
    return OwnElement(ENV, SignalListener())


def comment(place: Path) -> Comment:
    return parse((place / "comment").read_text())


def hang(place: Path) -> Callable[[], object]:
    """slurmctld lists the elements and answers no other question. Return a function that
    ends this.
    """
    (place / "knows-all").touch()
    text = (place / "squeue").read_text()
    (place / "squeue").write_text(text.replace("*) cat", "*) exec sleep 60; cat"))
    return lambda: (place / "squeue").write_text(text)


def test_all_news_of_a_moment_is_a_single_request(
    element: OwnElement,
    slurm: Path,
    tmp_path: Path,
) -> None:
    (slurm / "comment").write_text("mine")
    element.report_started()
    before = len(asked(slurm))
    (tmp_path / "wanted").write_text("3")
    element.report(Standing.LEAVING)
    element.report_loss(Loss(60))
    element.report_progress(Progress((RATE,)))
    remark.write_remark("your flag wins")
    WishFile(tmp_path / "wanted", ENV).look()
    wait_until(
        lambda: (
            (news := comment(slurm)).standing is Standing.LEAVING
            and news.loss == Loss(60)
            and bool(news.wish and news.progress and news.remark)
        )
    )
    assert len(asked(slurm)) - before <= 2  # the first may have begun before the last was said
    assert comment(slurm).rest.startswith("mine")


def test_a_start_does_not_wait_for_other_news_that_hang(
    element: OwnElement,
    slurm: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slurm_hooks.elastic.batch.own_element.START_S", 1.0)
    monkeypatch.setattr(job_comment, "TIMEOUT_S", 60.0)
    end = hang(slurm)
    remark.write_remark("your flag wins")
    time.sleep(0.5)
    began = time.monotonic()
    element.report_started()
    lasted_s = time.monotonic() - began
    end()
    assert lasted_s < TURN_S - 2.0


def test_a_remark_that_another_process_wrote_over_is_written_again(
    element: OwnElement,
    slurm: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remark, "LOOK_S", 1.0)
    element.report_started()
    remark.write_remark("your flag wins")
    wait_until(lambda: comment(slurm).remark == "your flag wins")
    (slurm / "comment").write_text("started{2};wish{4,5}")
    wait_until(lambda: comment(slurm).remark == "your flag wins")
    assert comment(slurm).wish


def test_two_wishes_of_the_same_second_do_not_replace_each_other_endlessly(slurm: Path) -> None:
    one, other = CommentWriter("7_3"), CommentWriter("7_3")
    now = int(time.time())
    other.write("wish", Wish(8, now))
    assert one.write("wish", Wish(4, now))  # no write: within a second the larger wish counts
    assert comment(slurm).wish == Wish(8, now)
    assert not one.write("wish", Wish(9, now))


def test_a_wish_from_a_clock_that_was_ahead_gives_way(slurm: Path) -> None:
    """The reconciler ignores this wish, so it must not block later wishes."""
    now = int(time.time())
    (slurm / "comment").write_text(f"started{{2}};wish{{8,{now + 86400}}}")
    CommentWriter("7_3").write("wish", Wish(4, now))
    assert comment(slurm).wish == Wish(4, now)


def test_a_leave_that_is_not_recorded_yet_is_recorded_before_the_requeue(
    element: OwnElement,
    slurm: Path,
) -> None:
    element.report_started()
    (slurm / "refuse").touch()
    element.report(Standing.LEAVING)
    wait_until(lambda: any("leaving" in line for line in asked(slurm)))
    (slurm / "refuse").unlink()
    element._signals.is_terminated = True
    element.put_back()
    assert comment(slurm).standing is Standing.LEAVING
