"""Fragments with different directories do not continue as several trainings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_hooks.elastic.agent.actions import GiveUp, Wait
from slurm_hooks.elastic.liveness import apart
from slurm_hooks.elastic.liveness.absent import sentence as absent_sentence
from slurm_hooks.elastic.liveness.apart import PATIENCE_S, Apart, joined, request, sentence
from slurm_hooks.elastic.liveness.file_system import kind_of, local_kind
from slurm_hooks.elastic.rendezvous.causes import lost
from slurm_hooks.elastic.rendezvous.rounds import Limits, form
from slurm_hooks.elastic.rendezvous.state import State, Stop, expect, join
from slurm_hooks.protocol.comment import REMARK_WIDTH, Standing
from waiting import wait_until

from .lone_agent import Agent
from .members import member

MOUNTS = r"""22 1 0:20 / / rw,relatime shared:1 - overlay overlay rw
23 22 0:21 / /home rw,relatime - nfs4 server:/home rw
24 22 8:1 / /scratch rw - xfs /dev/sda1 rw
25 22 0:30 / /scratch/all rw - lustre mgs:/all rw
26 22 0:31 / /with\040space rw - tmpfs tmpfs rw
27 22 0:32 / /home rw - beegfs beegfs rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "overlay"),
        ("/homes/me", "overlay"),
        ("/home", "beegfs"),  # the newest mount there
        ("/home/me/run", "beegfs"),
        ("/scratch/me", "xfs"),
        ("/scratch/all/me", "lustre"),
        ("/scratch/allusers", "xfs"),
        ("/with space/run", "tmpfs"),
        ("run", ""),
    ],
)
def test_the_nearest_mount_point_decides_the_kind_of_file_system(path: str, kind: str) -> None:
    assert kind_of(path, MOUNTS) == kind


def test_the_memory_of_a_node_is_known_as_local_on_this_host() -> None:
    if not Path("/dev/shm").is_mount():
        pytest.skip("no tmpfs at /dev/shm")
    assert local_kind("/dev/shm/run") == "tmpfs"
    assert local_kind("/proc") == ""


def test_the_line_on_fragments_that_do_not_join_names_the_file_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind, text in (
        ("ext4", "or nodes that do not share /scratch/7 (on ext4 here)"),
        ("", "or nodes that do not share /scratch/7"),
    ):
        monkeypatch.setattr("slurm_hooks.elastic.liveness.absent.local_kind", lambda _, k=kind: k)
        line = absent_sentence((1,), "/scratch/7")
        assert line.startswith("fragment 1 runs but has not joined: ")
        assert line.endswith(text)
        assert len(line) <= REMARK_WIDTH


def test_the_remark_has_room_for_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "local_kind", lambda _: "ext4")
    text = sentence((0,), "/scratch/me")
    assert text.startswith("fragment 0 trains in another directory of this name: submit from one ")
    assert text.endswith(" /scratch/me, on ext4 of this node")
    assert len(text) <= REMARK_WIDTH
    assert sentence((0, 2), "/x").startswith("fragments 0, 2 train in ")


def test_an_agent_that_has_joined_reports_its_present_run() -> None:
    rows = """7_0|0|trained{0};h{6}
7_1|2|joined{2}
7_2|2|joined{1}
7_3|0|started{0}
7_4|0|leaving{0}
7_5|0|
x|joined{0}
"""
    assert joined(rows) == {0, 1}


def alone(number: int, *wanted: int) -> State:
    return expect(join(State(run="7"), member(number)), wanted)


def in_round(state: State, rounds: int = 1) -> State:
    for _ in range(rounds):
        state = join(form(state, Limits(1, 4), "n1", 1, 1000), state.members[0])
    return state


@pytest.mark.parametrize(
    ("state", "gives_up"),
    [
        (alone(1, 0, 1), True),  # about to train, while another agent trains
        (in_round(alone(1, 0, 1)), True),  # both have begun at the same moment
        (in_round(alone(0, 0, 2)), False),  # the first agent goes on
        (alone(1, 1), False),  # the other agent was not expected: Slurm is not asked
        (replace(alone(1, 0, 1), done=((0, 0, "1.0"),)), False),  # it has finished here
        (replace(alone(1, 0, 1), gone=(lost(0),)), False),  # it was lost here
        (join(alone(1, 0, 1), member(0)), False),  # it is here
        (in_round(alone(1, 0, 1), 2), False),  # it may have been
    ],
)
def test_an_agent_that_finds_others_elsewhere_gives_up(state: State, gives_up: bool) -> None:
    asked: list[Sequence[str]] = []

    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        return "".join(f"7_{number}|3|joined{{3}}\n" for number in state.wanted)

    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}
    findings = Apart("/scratch/7", env, ask)
    findings.check(state)
    assert bool(findings.why) is gives_up
    assert asked in ([], [request("7")])


class Neighbours:
    """Fragments 0 and 1 as Slurm shows them. This agent belongs to fragment 1."""

    def __init__(self, words: str) -> None:
        self.words, self.asked = words, 0

    def ask(self, command: Sequence[str]) -> str:
        assert command == request("7")
        self.asked += 1
        return f"7_0|3|{self.words}{{3}}\n7_1|0|started{{0}}\n"


def waiting(neighbours: Neighbours) -> Apart:
    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}
    return Apart("/scratch/7", env, neighbours.ask)


def given_up(findings: Apart) -> bool:
    """Tell whether the agent gives up, after another check without a question."""
    findings.wait(0.0, alone(1, 1))
    return bool(findings.why)


def test_a_waiting_agent_gives_up_when_others_wait_elsewhere_too() -> None:
    """No round can be formed, since each finds itself alone."""
    neighbours = Neighbours("waiting")
    findings = waiting(neighbours)
    state = alone(1, 1)  # this agent started first, so the other was not expected
    for now in (1.0, PATIENCE_S):
        assert not findings.wait(now, state)
    assert neighbours.asked == 0
    assert findings.wait(PATIENCE_S + 1, state)  # and tells the others that it waits
    wait_until(lambda: given_up(findings))
    assert neighbours.asked == 1
    assert findings.why.startswith("fragment 0 runs in another directory of this name: submit from")
    assert not findings.wait(2 * PATIENCE_S + 1, state)  # once is enough


@pytest.mark.parametrize("words", ["joined", "trained", "apart"])
def test_a_waiting_agent_gives_up_at_once_when_others_train_or_give_up_elsewhere(
    words: str,
) -> None:
    findings = waiting(Neighbours(words))
    for now in (1.0, PATIENCE_S + 1):
        findings.wait(now, alone(1, 1))
    wait_until(lambda: given_up(findings))


def test_an_agent_that_joins_while_slurm_is_asked_is_not_elsewhere() -> None:
    """Slurm may answer late that the other agent trains. By then it has joined here."""
    neighbours = Neighbours("joined")
    findings = waiting(neighbours)
    for now in (1.0, PATIENCE_S + 1):
        findings.wait(now, alone(1, 1))
    wait_until(lambda: neighbours.asked == 1)
    time.sleep(0.1)
    assert not findings.why  # the round may have begun: this agent does not wait any more
    findings.wait(PATIENCE_S + 2, join(alone(1, 1), member(0)))
    assert not findings.why


@pytest.mark.parametrize("words", ["started", "leaving", "finished"])
def test_a_waiting_agent_waits_for_others_that_start_or_end(words: str) -> None:
    """An agent that started may import torch for minutes, or run on a node that has died."""
    neighbours = Neighbours(words)
    findings = waiting(neighbours)
    for n in range(1, 5):
        findings.wait(n * (PATIENCE_S + 1), alone(1, 1))
        wait_until(lambda n=n: neighbours.asked == n - 1)
    time.sleep(0.1)
    assert not given_up(findings)


def test_a_waiting_agent_has_company_when_the_other_joins() -> None:
    neighbours = Neighbours("started")
    findings = waiting(neighbours)
    both = join(alone(1, 1), member(0))
    for n, state in enumerate((alone(1, 1), alone(1, 1), both)):
        findings.wait(1 + n * PATIENCE_S, state)
        wait_until(lambda n=n: neighbours.asked == n)
    time.sleep(0.1)
    findings.wait(0.0, both)
    assert not findings.why


def test_an_agent_below_its_minimum_searches_for_others_elsewhere(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(findings: Apart, now: float, state: State) -> bool:
        findings.why = "fragment 0 runs in another directory"
        return False

    monkeypatch.setattr(Apart, "wait", wait)
    assert isinstance(agent.session.next_action(), GiveUp)
    assert agent.reports.standings == [Standing.APART]


def test_an_agent_below_its_minimum_says_once_that_it_waits(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter((False, True, False))
    monkeypatch.setattr(Apart, "wait", lambda *_: next(answers))
    for _ in range(3):
        assert isinstance(agent.session.next_action(), Wait)
    assert agent.reports.standings == [Standing.WAITING]


@pytest.mark.parametrize(
    "env",
    [
        {
            "SLURM_ARRAY_JOB_ID": "7",
            "MALLEABLE_DIR": "/other",
        },  # the user has chosen this directory
        {"MALLEABLE_DIR": "/scratch/7"},
    ],
)
def test_slurm_is_not_asked_where_its_answer_could_not_help(env: dict[str, str]) -> None:
    findings = Apart("/scratch/7", env, lambda _: pytest.fail("asked"))
    findings.check(alone(1, 0, 1))
    for now in (1.0, 1000.0):
        findings.look(now, in_round(alone(1, 0, 1)))
    assert not findings.why


def test_the_first_round_waits_a_minute_for_agents_that_train() -> None:
    """They appear if a user has only removed the directory of a job that trains."""
    asked: list[Sequence[str]] = []

    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        return "7_0|0|joined{0}\n"

    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}
    state = alone(1, 0, 1)
    for comes in (True, False):
        findings, now = Apart("/scratch/7", env, ask), 5.0
        while findings.holds_up(now, state) and now < 35.0:
            now += 1.0
        assert (now, len(asked), findings.why) == (35.0, 1, "")
        assert not (comes and findings.holds_up(now, join(state, member(0))))
        asked.clear()
    while findings.holds_up(now, state):
        now += 1.0
    assert now == 5.0 + PATIENCE_S
    assert findings.why.startswith("fragment 0 trains in another directory")
    assert len(asked) == 1


def test_a_first_round_that_waits_for_others_says_so_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}
    findings = Apart("/scratch/7", env, lambda _: "7_0|0|joined{0}\n")
    for now in (5.0, 6.0, 7.0):
        assert findings.holds_up(now, alone(1, 0, 1))
    assert capfd.readouterr().err == (
        "malleable: fragment 0 trains and is not in this directory yet: waiting for up to 60 s\n"
    )


def test_agents_that_train_do_not_give_up_where_the_directory_was_removed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New agents have made the directory again."""
    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/nowhere"}
    answer = "7_0|0|joined{0}\n7_1|0|joined{0}\n"
    agent.session._apart = Apart("/nowhere", env, lambda _: answer)
    monkeypatch.setattr(
        "threading.Thread.start", lambda thread: thread._target(*thread._args, **thread._kwargs)
    )
    agent.train()
    assert agent.look() is Stop.NO
    agent.directory.state = alone(3, 0, 1, 3)
    assert agent.look(after_s=PATIENCE_S + 1) is Stop.NOW
    agent.session.begin_wait(0)
    for _ in range(100):
        assert not isinstance(agent.session.next_action(), GiveUp)
        agent.clock.sleep(1.0)


def test_a_training_agent_asks_once_after_a_minute() -> None:
    asked: list[Sequence[str]] = []

    def ask(command: Sequence[str]) -> str:
        asked.append(command)
        return "7_0|0|joined{0}\n"

    findings = Apart("/scratch/7", {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}, ask)
    state = in_round(alone(1, 0, 1))
    for now in (1.0, PATIENCE_S):
        findings.look(now, state)
    assert not asked
    for now in (PATIENCE_S + 1, PATIENCE_S + 2):
        findings.look(now, state)
    wait_until(lambda: findings.why)
    time.sleep(0.1)
    assert len(asked) == 1


def test_each_round_has_its_own_minute() -> None:
    """Other agents may still stop their workers when the first round of a new directory forms."""
    answer = "7_0|0|joined{0}\n"
    env = {"SLURM_ARRAY_JOB_ID": "7", "MALLEABLE_DIR": "/scratch/7"}
    findings = Apart("/scratch/7", env, lambda _: answer)
    state = in_round(alone(1, 0, 1))
    findings.look(1.0, state)
    assert state.round is not None
    later = replace(state, round=replace(state.round, formed_at=2000))
    for now in (PATIENCE_S + 2, 2 * PATIENCE_S + 1):
        findings.look(now, later)
        time.sleep(0.1)
        assert not findings.why
    findings.look(2 * PATIENCE_S + 3, later)
    wait_until(lambda: findings.why)


def test_an_agent_that_is_apart_gives_up_before_it_trains(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[State] = []

    def holds_up(findings: Apart, now: float, state: State) -> bool:
        asked.append(state)
        findings.why = "fragment 0 trains in another directory"
        return False

    monkeypatch.setattr(Apart, "holds_up", holds_up)
    while not isinstance(action := agent.session.next_action(), GiveUp):
        assert isinstance(action, Wait)
        agent.clock.sleep(1.0)
    assert action.why == "fragment 0 trains in another directory"
    assert [state.rounds for state in asked] == [0]
    assert agent.reports.standings == [Standing.APART]


def test_an_agent_that_is_found_to_be_apart_stops_its_workers(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(findings: Apart, now: float, state: State) -> None:
        findings.why = "fragment 0 trains in another directory"

    agent.train()
    assert agent.look() is Stop.NO
    monkeypatch.setattr(Apart, "look", look)
    assert agent.look() is Stop.NOW
    agent.session.begin_wait(0)
    assert isinstance(agent.session.next_action(), GiveUp)
