"""A newcomer with other start options than the training agents gets a message."""

from __future__ import annotations

import pytest

from slurm_hooks.elastic.agent.launched import difference, launch_of, other_option, summary
from slurm_hooks.elastic.rendezvous.codec import decode, encode
from slurm_hooks.elastic.rendezvous.launches import MOST, newest_launch, note, other_launch
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import (
    Member,
    Phase,
    State,
    come_back,
    expire,
    join,
)

from .lone_agent import OTHER, Agent
from .members import member

LIMITS = Limits(1, 4)
SCRATCH = launch_of(["train.py", "--init_from=scratch"])
RESUME = launch_of(["train.py", "--init_from=resume"])


def started(state: State, number: int, words: list[str]) -> State:
    return note(join(state, member(number)), member(number).token, launch_of(words))


def test_agents_with_the_same_start_share_an_entry() -> None:
    state = State(run="7")
    for number in range(9):
        state = started(state, number, ["train.py", "--init_from=scratch"])
    (kept,) = state.launches
    assert kept.text == "train.py --init_from=scratch"
    assert len(kept.tokens) == 9
    assert other_launch(state, member(3).token, SCRATCH) is None
    assert decode(encode(state)) == state


def test_an_agent_with_another_start_names_the_others() -> None:
    state = started(State(run="7"), 1, ["train.py", "--init_from=scratch"])
    state = started(state, 2, ["train.py", "--init_from=resume"])
    launch = other_launch(state, member(2).token, RESUME)
    assert launch is not None
    assert launch.text == SCRATCH.text
    gone = expire(state, frozenset({member(1).token}), 0)
    assert other_launch(gone, member(2).token, RESUME) is None
    again = started(gone, 3, ["train.py", "--init_from=resume"])
    assert [one.text for one in again.launches] == [RESUME.text], "what is gone is forgotten"


def test_an_agent_that_returns_with_another_start_counts_with_its_new_start() -> None:
    state = started(State(run="7"), 1, ["train.py", "--init_from=scratch"])
    state = started(state, 1, ["train.py", "--init_from=resume"])
    assert [(one.text, len(one.tokens)) for one in state.launches] == [(RESUME.text, 1)]


def test_finished_agents_and_strangers_do_not_count() -> None:
    state = started(State(run="7"), 1, ["train.py", "--init_from=scratch"])
    (first,) = state.members
    done = State(run="7", members=(Member(**{**vars(first), "phase": Phase.DONE}),))
    done = note(done, first.token, SCRATCH)
    assert other_launch(done, member(2).token, RESUME) is None
    assert note(State(run="7"), member(9).token, RESUME) == State(run="7")
    assert note(state, member(1).token, None) is state


def test_the_kept_text_is_bounded_and_plain() -> None:
    state = State(run="7")
    for number in range(MOST + 9):
        state = started(state, number, ["train.py", f"--seed={number}", "\x1b[2J\n\ud800ä" * 999])
    assert len(state.launches) == MOST
    assert all(len(one.text) == 200 for one in state.launches)
    assert decode(encode(state)) == state


@pytest.mark.parametrize("stage", [1, 2])
def test_only_agents_of_the_same_training_are_compared(
    agent: Agent, capsys: pytest.CaptureFixture[str], stage: int
) -> None:
    """A batch script may start torchrun for several scripts in turn."""
    agent.directory.update(lambda s: note(join(s, OTHER), OTHER.token, SCRATCH))
    agent.directory.stage = stage
    agent.session.note_launch(["train.py", "--init_from=resume"])
    for _ in range(3):
        agent.session.next_action()
    log = capsys.readouterr().err
    assert log.count("was started with `train.py --init_from=resume`") == (stage == 1), log


@pytest.mark.parametrize(
    ("mine", "others", "name"),
    [
        ("--init_from=resume", "--init_from=scratch", "--init_from"),
        ("--lr 1 --init_from resume", "--lr 1 --init_from scratch", "--init_from"),
        ("--lr 1 --resume a.pt", "--lr 1", "--resume"),
        ("--lr 1", "--lr 1 --resume a.pt", "--resume"),
        ("resume", "scratch", "arguments"),
        ("'a b'", "'a c'", "arguments"),
    ],
)
def test_the_option_that_differs_is_named_without_its_value(
    mine: str, others: str, name: str
) -> None:
    """All users can read the Comment of a job."""
    here, there = (launch_of(["train.py", *text.split(" ")]) for text in (mine, others))
    text = summary(here, there, 3)
    assert text.startswith(f"fragment 3 was started with other {name} than the training: ")
    assert len(text) <= 160


def test_both_texts_are_in_the_log() -> None:
    assert difference(RESUME, SCRATCH, "").startswith(
        "this fragment was started with `train.py --init_from=resume`, and others of this "
        "training with `train.py --init_from=scratch`: decide in the script"
    )
    assert "aaa...`" in difference(launch_of(["a" * 999]), SCRATCH, "--x")


@pytest.mark.parametrize(
    ("newest", "mine", "option"),
    [
        ("train.py --lr 1 --resume a.pt", "train.py --lr 1", "--resume"),
        ("train.py --lr 1", "train.py --lr 1 --resume=a.pt", "--resume"),
        ("-m train --resume a.pt", "-m train", "--resume"),
        ("train.py lr=1 resume=a.pt", "train.py lr=1", "resume"),
        ("train.py --node_rank=2 --seed 7 -j8", "train.py -j4 --seed 8 --node_rank=0", ""),
        ("train.py --shift -1 -- a", "train.py --shift 1 -- b", ""),
        ("other.py --resume a.pt", "train.py", ""),
        ("-m other --resume a.pt", "-m train", ""),
        ("", "train.py --resume a.pt", ""),
    ],
)
def test_only_another_set_of_options_is_taken_over(newest: str, mine: str, option: str) -> None:
    assert other_option(tuple(newest.split()), tuple(mine.split())) == option


def test_the_newest_is_the_member_that_joined_last() -> None:
    """A newcomer may share its command with an old member. An agent that comes back is not new."""
    state = started(State(run="7"), 1, ["train.py"])
    state = started(state, 2, ["train.py", "--resume"])
    assert newest(state) == "train.py --resume"
    state = started(state, 3, ["train.py"])
    assert newest(state) == "train.py"
    given_up = expire(state, frozenset({member(2).token}), 0)
    back = note(
        come_back(given_up, member(2)), member(2).token, launch_of(["train.py", "--resume"])
    )
    assert newest(back) == "train.py"
    assert newest(come_back(state, member(1))) == "train.py"
    assert newest(State(run="7", members=state.members)) == "", "nobody has said a command"


def newest(state: State) -> str:
    formed = form(state, LIMITS, "n1", 1, 0)
    assert formed.round
    assert decode(encode(formed)) == formed
    launch = newest_launch(formed, formed.round)
    return launch.text if launch else ""


def test_without_the_arguments_of_the_newest_an_agent_keeps_its_own(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example, a fragment with an older version of this software has not written them."""
    agent.session.note_launch(["train.py"])
    agent.enter()
    for words in ((), ("train.py", "--other")):
        agent.directory.words[RESUME.digest] = words
        agent.directory.update(lambda s: note(join(s, OTHER), OTHER.token, RESUME))
        agent.session.begin_wait(0)
        agent.enter()
        assert list(agent.session.words) == ["train.py"]
    assert capsys.readouterr().err.count("this fragment keeps its own arguments") == 2
