"""The active check's own answers: its readings and refusals, without Slurm."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from pytest_mock import MockerFixture

from slurm_hooks import cli
from slurm_hooks.commands.console import caller
from slurm_hooks.doctor.trial.cost import Cost, parse_cost, window
from slurm_hooks.doctor.trial.run import Step, StepFailed, Trial
from slurm_hooks.doctor.trial.script import Wish, pick_partition, submit_malleable
from slurm_hooks.errors import UsageError
from slurm_hooks.model import FragmentState, Said
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command

SDIAG = """
Remote Procedure Call statistics by message type
	REQUEST_NODE_INFO                       ( 2007) count:2      ave_time:243    total_time:486

Remote Procedure Call statistics by user
	root            (       0) count:8      ave_time:466    total_time:3734
	nobody          (   65534) count:110    ave_time:1000   total_time:110000

Pending RPC statistics
	No pending RPCs
"""


def test_cost_by_user() -> None:
    assert parse_cost(SDIAG) == {"root": Cost(8, 0.003734), "nobody": Cost(110, 0.11)}
    assert parse_cost("") == {}


def test_the_questions_between_two_readings() -> None:
    seen = window(
        {"a": Cost(10, 1.0), "b": Cost(5, 1.0)}, {"a": Cost(40, 1.5), "b": Cost(5, 1)}, 60
    )
    assert seen.users == (("a", Cost(30, 0.5)),)
    assert seen.rpcs_per_min == 30
    assert seen.load == pytest.approx(0.5 / 60)


def test_statistics_that_were_reset_count_from_zero() -> None:
    assert window({"a": Cost(100, 9.0)}, {"a": Cost(4, 0.1)}, 60).users == (("a", Cost(4, 0.1)),)


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        ("malleable up\nmain* up\n", "main"),
        ("malleable up\nshort up\nmain* down\n", "short"),
        ("malleable* up\nlong up\n", "long"),
        ("malleable up\n", ""),
        ("", ""),
    ],
)
def test_the_partition_of_the_ordinary_job(text: str, picked: str) -> None:
    assert pick_partition(text, ("malleable",)) == picked


def test_words_of_the_caller_are_single_arguments() -> None:
    """No shell sees them, and no word can become a separate option."""
    wish = Wish("x", partition="a b --wrap=rm", account="$(id)", constraint="--uid=0")
    argv = submit_malleable(wish).argv
    assert "--partition=a b --wrap=rm" in argv
    assert "--account=$(id)" in argv
    assert "--constraint=--uid=0" in argv


@pytest.mark.parametrize(
    ("seen", "grew"),
    [([["n1", "n2"]] * 2, "on n1, n2, all from the start"), ([["n1"], ["n1", "n2"]], "on n1, n2")],
)
def test_a_job_that_starts_on_all_nodes_is_not_said_to_grow(
    seen: list[list[str]], grew: str, mocker: MockerFixture
) -> None:
    looks = [SimpleNamespace(nodes=set(nodes), fragments=[]) for nodes in seen]
    mocker.patch.multiple(
        Trial,
        _submit=lambda _: "job 7",
        _look=lambda _: looks.pop(0),
        _yield=mocker.Mock(side_effect=StepFailed(Step.YIELD, "far enough")),
        _clean=lambda _: None,
    )
    trial = Trial(Wish("x"), mocker.Mock(), (), lambda _: None)
    with pytest.raises(StepFailed, match="far enough"):
        trial.run()
    assert [done.saw for done in trial.done if done.step is Step.GROW] == [grew]


def test_a_script_that_has_not_begun_is_not_told_to_finish(mocker: MockerFixture) -> None:
    """It would die of the signal, and wait for another run, in which it is told."""
    silent, held = (FragmentState.RUNNING, Said.NOTHING), (FragmentState.HELD, Said.NOTHING)
    joined, done = (FragmentState.RUNNING, Said.JOINED), (FragmentState.DONE, Said.JOINED)
    looks, heard = iter([silent] * 4 + [held, joined, done]), []
    now = SimpleNamespace(
        nodes={"n1"}, fragments=[SimpleNamespace(mark=SimpleNamespace(stopped=""))]
    )

    def look(_: Trial) -> SimpleNamespace:
        (fragment,) = now.fragments
        fragment.state, fragment.said = next(looks)
        fragment.is_active = fragment.state is FragmentState.RUNNING
        return now

    mocker.patch.multiple(
        Trial,
        _submit=lambda _: "job 7",
        _look=look,
        _yield=lambda *_: None,
        _pause=lambda *_: None,
        _clean=lambda _: None,
    )
    port = SimpleNamespace(ask=lambda _: heard.append(now.fragments[0].said))
    Trial(Wish("x", nodes=1), port, (), lambda _: None).run()
    assert heard == [Said.JOINED]


def test_a_missing_user() -> None:
    with pytest.raises(UsageError, match="there is no user 'nobody-of-that-name'"):
        Live(user="nobody-of-that-name").ask(Command(("true",)))


def test_the_users_that_may_submit_for_others(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["test"] if os.geteuid() == 0 else ["test", "--user", "root"]
    assert cli.main(words) == 64
    assert "--user" in capsys.readouterr().err


def test_a_caller_without_a_name_gets_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, a container was started with a bare number as user."""
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_001)
    with pytest.raises(UsageError, match="no name for user 4000000001"):
        caller()
