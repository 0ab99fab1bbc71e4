"""The wanted fragments: as Slurm names them, as agents share them, and the decisions by them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from programs import write_program
from slurm_hooks.elastic.agent.settling import has_settled
from slurm_hooks.elastic.batch.expected import MOST, ArrayFacts, is_wanted, own_job, parse, request
from slurm_hooks.elastic.batch.lease import Lease, ask_all, behind
from slurm_hooks.elastic.rendezvous.codec import StateFormatError, decode, encode
from slurm_hooks.elastic.rendezvous.rounds import (
    is_known_complete,
    may_form,
)
from slurm_hooks.elastic.rendezvous.state import (
    depart,
    expect,
    expire,
    join,
    succeed,
)

from .members import LIMITS, NOW, gathered, member, running, token

CAPTURED = Path(__file__).with_name("captured") / "22.05"
NONE = "(null)"  # as squeue prints a Comment that is not there


def test_a_row_without_a_node_names_no_fragment() -> None:
    assert parse("0|RUNNING|0|0|,|1||\n1|PENDING|9|1|N/A|N/A|Resources|\n", 0) == ArrayFacts()


@pytest.mark.parametrize(
    ("situation", "own", "facts"),
    [
        ("running", 3, ArrayFacts(1795199984, 1795200104, (0, 1, 2, 3), NONE)),
        (
            "leaving",
            0,
            ArrayFacts(1795199984, 1795200104, (0, 3, 4, 5), NONE),
        ),  # 1 and 2 are completing
        ("leaving", 1, ArrayFacts(comment=NONE)),  # too late
        (
            "requeued",
            3,
            ArrayFacts(1795199984, 1795200104, (0, 3, 4, 5), NONE),
        ),  # 1 preempted, 2 held
        ("requeued", 9, ArrayFacts()),
        ("units", 1, ArrayFacts(1795200031, 1795200151, (0, 0, 1, 1), NONE)),
    ],
)
def test_the_wanted_fragments_according_to_slurm(
    situation: str, own: int, facts: ArrayFacts
) -> None:
    assert parse((CAPTURED / f"{situation}.elements.txt").read_text(), own) == facts


@pytest.mark.parametrize(
    ("state", "priority", "reason", "wanted"),
    [
        ("RUNNING", 9, "None", True),
        ("RUNNING", 0, "JobHeldAdmin", True),  # held for its next run
        ("CONFIGURING", 9, "None", True),
        ("PENDING", 9, "None", True),
        ("PENDING", 9, "Resources", True),
        ("PENDING", 0, "JobHeldUser", False),
        ("PENDING", 9, "BeginTime", False),
        ("COMPLETING", 9, "None", False),
        ("SUSPENDED", 9, "None", False),
        ("REQUEUE_HOLD", 9, "None", False),
        ("SOMETHING_NEW", 9, "None", False),
    ],
)
def test_the_wanted_elements(state: str, priority: int, reason: str, wanted: bool) -> None:
    assert is_wanted(state, priority, reason) is wanted


def test_lines_of_another_form_are_passed_over() -> None:
    known = "1|RUNNING|9|1|1700|1800|None|mine|2"
    assert parse(f"x\n{known}\n2|RUNNING|9|1K|0|0|None|\n3\n\n", 1).wanted == (1,)
    assert parse("N/A|RUNNING|9|1|1700|1800|None|", 1) == ArrayFacts()
    many = parse(f"{known}\n" + "2|RUNNING|9|999999|1|2|None|\n" * 9, 1)
    assert len(many.wanted) == MOST
    assert "--job=12" in request("12")
    assert parse(known, 1).comment == "mine|2"
    assert parse(known, 2).comment is None


@pytest.mark.parametrize("env", [{}, {"SLURM_ARRAY_JOB_ID": "7"}, {"SLURM_ARRAY_TASK_ID": "1"}])
def test_outside_of_an_array_no_fragment_is_wanted(env: dict[str, str]) -> None:
    assert ask_all(env) == ArrayFacts()


def test_without_an_answer_no_fragment_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    answer_with(f"cat {CAPTURED}/running.elements.txt; exit 1", tmp_path, monkeypatch)
    assert ask_all(env) == ArrayFacts()
    (tmp_path / "squeue").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_all(env) == ArrayFacts()


def answer_with(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(tmp_path / "squeue", body)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")


def test_the_start_is_a_single_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    body = f"echo x >> {asked}; cat {CAPTURED}/running.elements.txt"
    answer_with(body, tmp_path, monkeypatch)
    lease = Lease({"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}, 20.0)
    assert (lease.ends, lease.wanted) == (1795200104, (0, 1, 2, 3))
    assert asked.read_text() == "x\n"


@pytest.mark.parametrize(
    ("starts", "now", "behind_s"),
    [(0, 1000.0, 0), (1000, 1003.0, 0), (1000, 943.0, 57), (10**11, 1000.0, 300)],
)
def test_a_clock_before_the_start_is_behind(starts: int, now: float, behind_s: float) -> None:
    assert behind(starts, now) == behind_s


@pytest.mark.parametrize(
    ("here", "wanted", "complete"),
    [
        ((1, 2), (), None),
        ((1, 2), (1, 2), True),
        ((1, 2), (1, 2, 5), False),
        ((1, 2, 5), (1, 2), True),  # fragment 5 was not expected, and it came
        ((1, 2), (1, 1, 2), False),  # an agent for each of the two nodes of fragment 1
    ],
)
def test_missing_fragments_are_wanted_and_have_not_joined(
    here: tuple[int, ...], wanted: tuple[int, ...], complete: bool | None
) -> None:
    assert is_known_complete(expect(gathered(*here), wanted)) is complete


def test_every_node_of_a_fragment_brings_an_agent() -> None:
    state = expect(gathered(1, 2), (1, 1, 2))
    second = replace(member(1), node=1, token="f" * 16)
    assert is_known_complete(join(state, second))


@pytest.mark.parametrize(
    ("wanted", "quiet_s", "waited_s", "forms"),
    [
        ((1, 2), 0, 0, True),  # all are here
        ((), 2.9, 99, False),  # no fragment is expected: a last call
        ((), 3.0, 3.0, True),
        ((1, 2, 3), 5.9, 5.9, False),  # a fragment is expected: a longer last call
        ((1, 2, 3), 6.0, 6.0, True),
        ((1, 2, 3), 0, 30, True),  # they trickle in
    ],
)
def test_the_first_round_waits_for_the_wanted_fragments(
    wanted: tuple[int, ...], quiet_s: float, waited_s: float, forms: bool
) -> None:
    assert may_form(expect(gathered(1, 2), wanted), LIMITS, quiet_s, waited_s) is forms


@pytest.mark.parametrize(
    ("wanted", "quiet_s", "known_s", "settled"),
    [
        ((1, 2, 3), 0, 0, True),
        ((1, 2, 3, 4), 4.9, 4.9, False),  # a single round for 3 and 4
        ((1, 2, 3, 4), 0, 5, True),
        ((), 0.9, 4.9, False),
        ((), 1, 1, True),
        ((), 0, 5, True),
    ],
)
def test_training_stops_once_for_all_expected_fragments(
    wanted: tuple[int, ...], quiet_s: float, known_s: float, settled: bool
) -> None:
    state = expect(join(running(1, 2), member(3)), wanted)
    assert has_settled(state, 1.0, 0.0, quiet_s, known_s) is settled


def test_a_leaving_fragment_is_not_waited_for_and_no_answer_is_no_news() -> None:
    state = expect(running(1, 2, 3), (1, 2, 3, 4))
    assert expect(state, ()) == state
    assert depart(state, token(3), NOW, planned=True).wanted == (1, 2, 4)
    assert expire(state, frozenset({token(2)}), NOW).wanted == (1, 3, 4)
    newer = replace(member(1, incarnation="1.1"), token="f" * 16)
    assert is_known_complete(expect(join(running(1, 2), newer), (1, 2)))


@pytest.mark.parametrize(
    "wanted", [[-1], [True], ["1"], [1.0], [2**60], [[1]], {"1": 1}, [1] * 5000]
)
def test_only_fragment_numbers_are_wanted(wanted: object) -> None:
    document = json.loads(encode(running(1, 2)))
    with pytest.raises(StateFormatError):
        decode(json.dumps({**document, "wanted": wanted}))


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({"SLURM_JOB_ID": "10"}, "10"),
        # the last element of an array has the array's id, which to Slurm means all of them
        (
            {"SLURM_JOB_ID": "10", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "1"},
            "10_1",
        ),
        ({"SLURM_JOB_ID": "10; x"}, ""),
        ({"SLURM_JOB_ID": "10", "SLURM_ARRAY_JOB_ID": "10", "SLURM_ARRAY_TASK_ID": "-1"}, "10"),
        ({}, ""),
    ],
)
def test_an_element_of_an_array_means_itself(env: dict[str, str], name: str) -> None:
    assert own_job(env) == name


def test_an_answer_without_the_newcomer_is_too_old() -> None:
    """Its own question failed, so its neighbours, released with it, are unknown too."""
    alone = expect(running(1), (1,))
    joined = expect(join(alone, member(2)), ())
    assert joined.wanted == ()
    assert is_known_complete(joined) is None
    assert expect(join(joined, member(3)), (1, 2, 3, 4)).wanted == (1, 2, 3, 4)


def test_both_agents_of_a_fragment_with_two_nodes_must_be_named() -> None:
    second = replace(member(1), token="f" * 16, node=1)
    state = join(expect(gathered(1), (1,)), second)
    assert expect(state, ()).wanted == ()
    assert expect(expect(state, (1, 1)), ()).wanted == (1, 1)


def test_a_fragment_that_is_done_need_not_be_named() -> None:
    finished = succeed(expect(running(1, 2), (1, 2)), token(1), NOW)
    state = join(expect(finished, (2, 3, 4)), member(3))
    assert expect(state, ()).wanted == (2, 3, 4)
