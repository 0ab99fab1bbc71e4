"""Watched objects through both kinds of end, with real torchrun and real signals.

The resumed state equals, to the bit, a state that the script itself noted at a step boundary.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from slurm_hooks.elastic.script.stored_step import step_on_disk
from waiting import wait_until

from .gang import Gang

pytestmark = [pytest.mark.torch]

SCRIPT = Path(__file__).with_name("train_watched.py")
USUAL = Path(__file__).with_name("train_usual.py")
NNODES = "1:3"
LONG = 100_000


@pytest.fixture
def watched(gang: Gang) -> Gang:
    """Two fragments of the standard training. Neither writes a file."""
    gang.script = USUAL
    for fragment in (1, 2):
        gang.start(fragment, NNODES, LONG, "watch")
    gang.wait_world(2)
    return gang


def begin(gang: Gang, nnodes: str, count: int = 2, world: int = 0) -> None:
    gang.script = SCRIPT
    for fragment in range(1, count + 1):
        gang.start(fragment, nnodes, LONG)
    gang.wait_world(world or count)


def noted(gang: Gang) -> dict[int, set[str]]:
    """Digests of each step's boundary, as the fragments noted them."""
    digests: dict[int, set[str]] = {}
    for path in gang.work.glob("digests-*"):
        for line in path.read_text().splitlines():
            step, digest = line.split()
            digests.setdefault(int(step), set()).add(digest)
    return digests


def reached(gang: Gang, before: float) -> int:
    """The last step that any process reached before that time."""
    rows = [
        line.split()
        for path in gang.work.glob("reached-*")
        for line in path.read_text().splitlines()
    ]
    return max(int(step) for t, step, _ in rows if float(t) < before)


def train_on(gang: Gang, steps: int = 10) -> None:
    """Wait until so many more steps are done."""
    wanted = reached(gang, time.time()) + steps
    wait_until(lambda: reached(gang, time.time()) >= wanted, explain=gang.dump)


def has_ended(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return "State:\tZ" in status.read_text()
    return True


def resumed_after(gang: Gang, since: float) -> int:
    """The step at which the round after that time began.

    Check that all processes have the same state, and that it equals a boundary to the bit.
    """
    begins = [b for b in gang.begins() if b["t"] > since]
    step = int(begins[0]["step"])
    digests = {b["digest"] for b in begins if b["world"] == begins[0]["world"]}
    assert len(digests) == 1, begins
    assert digests <= noted(gang)[step]
    begun = min(b["t"] for b in begins)
    assert reached(gang, begun) - step <= 1, (reached(gang, begun), begins)
    return step


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGKILL, signal.SIGTERM),
        pytest.param(signal.SIGTERM, signal.SIGKILL, marks=pytest.mark.nightly),
    ],
)
def test_a_lost_node_costs_at_most_a_step_and_no_sample(
    gang: Gang, first: signal.Signals, second: signal.Signals
) -> None:
    """First a node is lost, then the host of the round. After that only a newcomer has the
    state.
    """
    gang.extra["MALLEABLE_FAREWELL_S"] = "30"  # no worker that is lost waits for its end
    begin(gang, NNODES)
    lose(gang, 2, first)
    t = time.time()
    gang.start(3, NNODES, LONG)
    gang.wait_world(2, since=t)
    assert resumed_after(gang, t) > 0
    lose(gang, 1, second)
    (gang.work / "enough").touch()
    assert gang.wait_exit(3) == [0]
    assert json.loads((gang.work / "finished").read_text())["off"] == 0


def lose(gang: Gang, victim: int, sig: signal.Signals) -> None:
    """Train, and lose a node of two."""
    train_on(gang)
    lost_at, workers = time.time(), gang.worker_pids(victim)
    gang.cut_off(victim, sig)
    wait_until(lambda: all(map(has_ended, workers)), 20)  # whatever the others have to write
    gang.wait_world(1, since=lost_at)
    assert resumed_after(gang, lost_at) > 0


def test_a_planned_change_tears_no_step_of_two_optimizers(gang: Gang) -> None:
    """The processes are inside of a step nearly all of the time, and stop between two steps."""
    gang.flags, gang.extra["TRAIN_GAN_S"] = ["--nproc-per-node=2"], "0.15"
    begin(gang, NNODES, count=1, world=2)
    train_on(gang, 3)
    t = time.time()
    gang.start(2, NNODES, LONG)
    gang.wait_world(4, since=t)
    assert_no_step_was_torn(gang, t)
    t = gang.notify(1)
    gang.wait_world(2, since=t)
    assert_no_step_was_torn(gang, t)


def assert_no_step_was_torn(gang: Gang, since: float) -> None:
    step = resumed_after(gang, since)
    begun = min(b["t"] for b in gang.begins() if b["t"] > since)
    rows = [row for path in gang.work.glob("torn-*") for row in path.read_text().splitlines()]
    torn = [int(row.split()[1]) for row in rows if float(row.split()[0]) < begun]
    assert max(torn) == step, (torn[-6:], step)


def written(gang: Gang) -> int:
    return step_on_disk(gang.work / "checkpoint.pt")


@pytest.mark.parametrize("sig", [pytest.param(None, marks=pytest.mark.nightly), signal.SIGTERM])
def test_when_all_leave_the_last_boundary_becomes_a_file(
    watched: Gang, sig: signal.Signals | None
) -> None:
    """The end of the processes that draw the batches costs nothing, and writes no traceback."""
    train_on(watched)
    assert written(watched) == -1
    t = time.time()
    for fragment in (1, 2):
        watched.cut_off(fragment, sig) if sig else watched.notify(fragment)
    watched.wait_exit(1, 2)
    assert reached(watched, time.time()) - written(watched) <= 1
    watched.start(1, NNODES, LONG, "watch", restarts=1)
    watched.wait_world(1, since=t)
    assert resumed_after(watched, t) > 0
    assert "DataLoader worker" not in watched.log(1) + watched.log(2)


def test_when_all_leave_a_copy_in_memory_becomes_a_file(gang: Gang) -> None:
    """The script watches no object, but saves every step to memory. Its file is older."""
    gang.script = SCRIPT.with_name("train_samples.py")
    for fragment in (1, 2):
        gang.start(fragment, NNODES, LONG, str(LONG))
    gang.wait_world(2)
    wait_until(lambda: gang.steps()[-1][1] >= written(gang) + 10, explain=gang.dump)
    for fragment in (1, 2):
        gang.cut_off(fragment, signal.SIGTERM)
    gang.wait_exit(1, 2)
    assert gang.steps()[-1][1] - written(gang) <= 1


def test_a_waiting_fragment_that_is_given_notice_leaves_a_file(gang: Gang) -> None:
    begin(gang, "2:3")
    train_on(gang)
    gang.cut_off(1, signal.SIGKILL)
    wait_until(lambda: "lost 1" in gang.state(), explain=gang.dump)
    assert written(gang) == -1
    gang.notify(2)
    assert gang.wait_exit(2) == [0]
    assert reached(gang, time.time()) - written(gang) <= 1


def test_a_second_preemption_and_a_death_within_the_farewell(gang: Gang) -> None:
    begin(gang, NNODES, 3)
    train_on(gang)
    t = time.time()
    gang.cut_off(1, signal.SIGTERM)
    gang.cut_off(1, signal.SIGKILL)
    time.sleep(0.1)
    gang.cut_off(2, signal.SIGTERM)
    gang.wait_world(1, since=t)
    last = [b for b in gang.begins() if b["t"] > t][-1]
    assert last["step"] > 0
    assert last["digest"] in noted(gang)[int(last["step"])]
    assert reached(gang, last["t"]) - last["step"] <= 1


@pytest.mark.parametrize("handler", ["exit", pytest.param("stay", marks=pytest.mark.nightly)])
def test_the_state_is_kept_for_any_sigterm_handler_of_a_script(gang: Gang, handler: str) -> None:
    gang.extra["TRAIN_HANDLER"] = handler
    begin(gang, NNODES)
    train_on(gang)
    t = gang.notify(1)
    gang.wait_world(1, since=t)
    assert resumed_after(gang, t) > 0
    assert gang.wait_exit(1) == [0]
    assert (gang.work / "handled").exists()


def test_a_worker_that_does_not_end_is_gone_after_the_farewell(gang: Gang) -> None:
    gang.script = SCRIPT
    gang.extra |= {"TRAIN_HANDLER": "stay", "MALLEABLE_FAREWELL_S": "1"}
    gang.start(1, NNODES, LONG)
    gang.wait_world(1)
    workers = gang.worker_pids(1)
    gang.cut_off(1, signal.SIGTERM)
    wait_until(lambda: all(map(has_ended, workers)), 20)  # torchrun alone gives it 30 s
