"""Each `Why` has words for all its uses."""

from __future__ import annotations

import pytest

from build import NOW
from slurm_hooks.model import (
    USABLE,
    ClaimKind,
    Detail,
    FragmentId,
    FragmentState,
    Of,
    Reason,
    Resources,
    Said,
    Verdict,
    Why,
)
from slurm_hooks.report.why import LONGEST, action_text, headline, note_text, over_text, reason_text


@pytest.mark.parametrize("why", Of.ACTION.whys)
def test_every_action_has_words(why: Why) -> None:
    assert action_text(why.value) != why.value


def test_other_words_of_the_ledger_are_kept() -> None:
    """A later version may know other causes."""
    assert action_text("a_later_cause") == "a_later_cause"


@pytest.mark.parametrize("why", Of.NODE.whys)
def test_a_verdict_on_nodes_has_words(why: Why) -> None:
    text = reason_text(Reason(Why.OTHER_NODES, Detail(count=2, verdict=Verdict(why, "detail"))))
    assert text.startswith("2 other nodes: ")
    assert why in (Why.TAKEN, Why.USABLE, Why.PART_SMALL) or "free" in text


FULL = Detail(
    fragments=(FragmentId(7, 0),),
    nodes=("n1",),
    count=2,
    job=8,
    jobs=(1, 2),
    exit_code="1:0",
    said="word",
    at=NOW,
    since=NOW,
    until=NOW,
    seconds=60,
    nodes_usable=1,
    nodes_needed=2,
    nodes_planned=2,
    nodes_given=3,
    most=4,
    ceiling=5,
    wish=1,
    sizes_allowed=(2, 4),
    unit=2,
    engine="pool",
    failures=1,
    cancelled=1,
    standing=Said.STARTED,
    state=FragmentState.FAILED,
    cause=Why.LEFT,
    source=ClaimKind.PLANNED,
    by="job 9",
    user="ann",
    waiter="99",
    action="grow",
    verdict=USABLE,
    given=Resources(gres=(("gpu", 2),)),
    asked=Resources(gres=(("gpu", 4),)),
    partition="gpu",
    because=Reason(Why.GONE),
)


def test_every_reason_of_a_size_has_words() -> None:
    texts = {why: reason_text(Reason(why, FULL)) for why in Of.JOB.whys}
    assert all(text != why.value for why, text in texts.items())


@pytest.mark.parametrize("why", Of.JOB.whys)
def test_the_headline_of_a_reason_fits_a_table(why: Why) -> None:
    text = reason_text(Reason(why, FULL))
    head = headline(text)
    assert len(head) <= LONGEST
    assert text == head or text.startswith(f"{head}; ")


def test_a_headline_with_words_of_others_is_cut() -> None:
    head = headline("x" * 200)
    assert (len(head), head[-1]) == (LONGEST, "…")


def test_notes_on_a_plan_have_words() -> None:
    whys = (*Of.NOTE.whys, *Of.DROPPED.whys)
    texts = {why: note_text(Reason(why, FULL)) for why in whys}
    assert all(text != why.value for why, text in texts.items())
    assert texts[Why.NOT_DONE] == "not done: grow 7_0: it is gone"


def test_every_end_of_a_job_has_words() -> None:
    assert all(map(over_text, Of.OVER.whys))


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ({"nodes": ("n1",)}, "slurmctld has just started, and no job starts yet; n1 has not"),
        (
            {"nodes": ("n1", "n2")},
            "slurmctld has just started, and no job starts yet; n1, n2 have not",
        ),
        (
            {"nodes": ("n1", "n2"), "more": 3},
            "slurmctld has just started, and no job starts yet; n1, n2 and 3 more have",
        ),
    ],
)
def test_the_form_agrees_with_the_detail(detail: Detail, text: str) -> None:
    assert reason_text(Reason(Why.REGISTERING, detail)).startswith(text)


@pytest.mark.parametrize(
    ("given", "asked", "text"),
    [
        (
            Resources(0, 0, (("gpu", 2),)),
            Resources(0, 0, (("gpu", 4),)),
            "2 GPUs on n1 instead of 4 GPUs",
        ),
        (
            Resources(1, 0, (("gpu:a100", 0),)),
            Resources(8, 0, (("gpu:a100", 1),)),
            "0 a100 GPUs and 1 CPU on n1 instead of 1 a100 GPU and 8 CPUs",
        ),
        (Resources(3, 500), Resources(4, 1000), "3 CPUs and 500 MiB on n1 instead of 4 CPUs"),
    ],
)
def test_a_size_in_words(given: Resources, asked: Resources, text: str) -> None:
    detail = Detail(fragments=(FragmentId(7, 0),), nodes=("n1",), given=given, asked=asked)
    assert reason_text(Reason(Why.WRONG_SIZE, detail)).startswith(f"Slurm gave fragment 7_0 {text}")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (
            1,
            "7_0 is suspended; once its nodes are idle, run `scontrol resume 7_0`",
        ),
        (
            2,
            "7_0, 7_1 are suspended; once their nodes are idle, run `scontrol resume 7_0,7_1`",
        ),
    ],
)
def test_a_command_can_be_pasted(count: int, text: str) -> None:
    fragments = tuple(FragmentId(7, index) for index in range(count))
    assert reason_text(Reason(Why.SUSPENDED, Detail(fragments=fragments))) == text


def test_a_reason_without_a_form_has_its_identifier() -> None:
    assert reason_text(Reason(Why.SIZE)) == "size"
    assert note_text(Reason(Why.TAKEN)) == "taken"
    assert reason_text(Reason(Why.NO_JOB)) == "no_job"


def test_words_of_another_program_are_no_form() -> None:
    detail = Detail(since=NOW, said="{because} [fire] {")
    assert note_text(Reason(Why.OFF, detail)).endswith("({because} [fire] {)")
