"""The agent without torchrun: a command as the worker of a fragment."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_hooks.elastic.agent.options import OptionError
from slurm_hooks.elastic.engines.command import Command
from slurm_hooks.elastic.engines.order import Order, read_order
from slurm_hooks.elastic.engines.pool.workers import shares
from waiting import wait_until

from .processes import launch
from .test_standing import ENV, asked, says, slurm  # noqa: F401

AGENT = """
import sys
from slurm_hooks.elastic.batch import own_element as module, comment_writer as writer
from slurm_hooks.elastic.engines.pool import run as agent
writer.AGAIN_S, module.AGAIN_S, module.CONFIRM_S, module.SPREAD_S = 0.3, 0.3, 0.2, 0.0
sys.exit(agent.main(sys.argv[1:]))
"""
CHILD = """
import os, signal, sys, time
def end(number, frame):
    print("asked", number, flush=True)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, end if sys.argv[1] == "polite" else signal.SIG_IGN)
os.write(1, b"begun\\n")  # at once: two may say it at the same moment
time.sleep(60)
"""


def start(*words: str, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, **ENV, "MALLEABLE_ENGINE": "torchrun", **more}
    return launch([sys.executable, "-c", AGENT, *words], env, stderr=subprocess.PIPE)


def exit_code(*words: str) -> int:
    agent = start(*words)
    agent.communicate(timeout=150)
    return agent.returncode


def begun(*words: str) -> subprocess.Popen[str]:
    agent = start(*words)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "begun\n"
    return agent


def test_the_command_to_run() -> None:
    assert read_order(["a", "--signal=x"], {}) == Order(("a", "--signal=x"))
    words = ["--signal=INT", "--grace=2", "--", "a"]
    assert read_order(words, {}) == Order(("a",), signal.SIGINT, 2.0)
    for words in ([], ["--"], ["--signal=NO", "a"], ["--grace=x", "a"], ["--other", "a"]):
        with pytest.raises(OptionError):
            read_order(words, {})


@pytest.mark.parametrize(("notice_s", "grace_s"), [("", 15.0), ("60", 55.0), ("3", 0.0)])
def test_the_command_is_over_before_the_end_of_the_notice(notice_s: str, grace_s: float) -> None:
    assert read_order(["a"], {"MALLEABLE_NOTICE_S": notice_s}).grace_s == grace_s


def test_a_command_that_ends_well_has_finished(slurm: Path) -> None:  # noqa: F811
    assert exit_code("sh", "-c", "exit 0") == 0
    assert says(slurm, "finished{2}")()
    words = [line.rpartition("=")[2] for line in asked(slurm)]
    assert words[0] == "started{2}"
    assert words[-1] == "finished{2}"


def test_a_failing_or_missing_command_passes_its_exit_code_on(slurm: Path) -> None:  # noqa: F811
    assert exit_code("sh", "-c", "exit 3") == 3
    assert exit_code("sh", "-c", "kill -9 $$") == 137
    assert exit_code("/nowhere/command") == 127
    assert exit_code("--grace=x", "true") == 64
    assert not any("finished" in line for line in asked(slurm))


@pytest.mark.parametrize(
    ("flags", "manner", "said"),
    [(("--signal=INT",), "polite", "asked 2\n"), (("--grace=0.5",), "stubborn", "")],
)
def test_notice_ends_the_command_and_puts_the_fragment_back(
    slurm: Path,  # noqa: F811
    flags: tuple[str, ...],
    manner: str,
    said: str,
) -> None:
    agent = begun(*flags, sys.executable, "-c", CHILD, manner)
    agent.send_signal(signal.SIGURG)
    wait_until(lambda: "requeue 7_3" in asked(slurm))
    assert asked(slurm).count("uhold 7_3") == 1
    wait_until(says(slurm, "leaving{2}"))
    assert agent.poll() is None  # the batch script must not go on
    agent.send_signal(signal.SIGTERM)
    output, errors = agent.communicate(timeout=150)
    assert agent.returncode == 143
    assert output == said
    assert ("did not end within 0.5 s" in errors) is (manner == "stubborn")


PARTS = {
    "MALLEABLE_FRAGMENT": "3",
    "MALLEABLE_ENGINE": "pool",
    "SLURM_SPANK_MALLEABLE": "0-8,unit=2gpu,engine=pool",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_CPUS_ON_NODE": "12",
    "CUDA_VISIBLE_DEVICES": "0,2,3,5",
}
TELL = (
    'echo "$MALLEABLE_WORKER $CUDA_VISIBLE_DEVICES $SLURM_GPUS_ON_NODE $SLURM_CPUS_ON_NODE"'
    ' >"told.$MALLEABLE_WORKER"'
)


def test_on_a_part_of_a_node_each_worker_has_its_own_gpus(slurm: Path) -> None:  # noqa: F811
    end = 'while ! [ -e enough ]; do sleep 0.1; done; [ "$MALLEABLE_WORKER" = 3-0 ] || exit 5'
    agent = start("sh", "-c", f"cd {slurm}; {TELL}; {end}", **PARTS)
    wait_until(lambda: len(list(slurm.glob("told.*"))) == 2)
    (slurm / "enough").touch()
    agent.communicate(timeout=150)
    assert agent.returncode == 5  # of the worker that failed
    lines = {path.read_text().strip() for path in slurm.glob("told.*")}
    assert lines == {"3-0 0,2 2 6", "3-1 3,5 2 6"}


def test_the_workers_of_a_fragment_are_asked_together_to_end(slurm: Path) -> None:  # noqa: F811
    """A worker has ended before. The others have their grace at the same time."""
    begin = f'cd {slurm}; {TELL}; [ "$MALLEABLE_WORKER" != 3-0 ] || exit 0'
    child = shlex.join([sys.executable, "-c", CHILD, "stubborn"])
    more = {"SLURM_SPANK_MALLEABLE": "0-8,unit=gpu,engine=pool"}
    agent = start("--grace=2", "sh", "-c", f"{begin}; exec {child}", **PARTS | more)
    assert agent.stdout is not None
    assert [agent.stdout.readline() for _ in range(3)] == ["begun\n"] * 3
    asked_at = time.monotonic()
    agent.send_signal(signal.SIGURG)
    wait_until(lambda: "requeue 7_3" in asked(slurm))
    assert time.monotonic() - asked_at < 5
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=150)
    assert agent.returncode == 143


@pytest.mark.parametrize(
    "more",
    [
        {"SLURM_SPANK_MALLEABLE": "0-8,unit=2,engine=pool"},  # whole nodes
        {"MALLEABLE_ENGINE": "torchrun", "SLURM_SPANK_MALLEABLE": "1-8,unit=gpu"},
    ],
)
def test_on_a_whole_node_a_fragment_has_a_single_worker(more: dict[str, str]) -> None:
    assert shares({**PARTS, **more}) == [{}]


def test_a_user_s_signal_misses_the_number_of_a_command_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another group may have the number by then, while other workers of the fragment run."""
    command, sent = Command(["true"], os.environ), []
    wait_until(lambda: command.exit_code() == 0)
    monkeypatch.setattr(os, "killpg", lambda *words: sent.append(words))
    command.pass_on(signal.SIGUSR1)
    assert sent == []
    monkeypatch.undo()
    command.end_rest()


def test_tasks_share_the_processors() -> None:
    request = "0-64,unit=4task,engine=pool"
    slot = {"SLURM_SPANK_MALLEABLE_SLOT": "cpu:1+mem:100", "SLURM_CPUS_PER_TASK": "12"}
    env = {"MALLEABLE_ENGINE": "pool", "SLURM_SPANK_MALLEABLE": request, "MALLEABLE_FRAGMENT": "3"}
    tasks = shares({**env, **slot, "SLURM_CPUS_ON_NODE": "12"})
    assert [one["MALLEABLE_WORKER"] for one in tasks] == ["3-0", "3-1", "3-2"]
    assert {(one["SLURM_CPUS_ON_NODE"], one["SLURM_CPUS_PER_TASK"]) for one in tasks} == {
        ("4", "4")
    }
    assert "SLURM_GPUS_ON_NODE" not in tasks[0]


def test_sigterm_is_passed_on_and_no_fragment_is_put_back(slurm: Path) -> None:  # noqa: F811
    agent = begun(sys.executable, "-c", CHILD, "polite")
    agent.send_signal(signal.SIGTERM)
    assert agent.communicate(timeout=150)[0] == "asked 15\n"
    assert agent.returncode == 143
    assert not any("requeue" in line for line in asked(slurm))


def test_processes_of_the_command_get_the_signal_too(slurm: Path) -> None:  # noqa: F811
    child = shlex.join([sys.executable, "-c", CHILD, "polite"])
    agent = begun("sh", "-c", f"{child} & wait")
    agent.send_signal(signal.SIGTERM)
    assert agent.communicate(timeout=150)[0] == "asked 15\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGURG])
def test_a_command_with_exit_code_0_after_a_notice_has_not_finished(
    slurm: Path,  # noqa: F811
    number: signal.Signals,
) -> None:
    """Slurm's signals reach the command directly, before or after the agent."""
    answer = "trap 'exit 0' TERM URG; echo begun; while :; do sleep 0.1; done"
    agent = begun("sh", "-c", answer)
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    (child,) = (int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "sh\n")
    os.kill(child, number)
    agent.send_signal(number)
    wait_until(lambda: number is signal.SIGTERM or "requeue 7_3" in asked(slurm))
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=150)
    assert agent.returncode == 143
    assert not any("finished" in line for line in asked(slurm))


def test_a_command_that_has_outlived_a_lease_has_made_progress(slurm: Path) -> None:  # noqa: F811
    ahead = str(int(time.time()) + 2)
    renewed = "agent.Lease.is_over = lambda lease, now: False\n"
    words = ["sleep", "60"]
    env = {**os.environ, **ENV, "MALLEABLE_ENGINE": "torchrun", "SLURM_JOB_END_TIME": ahead}
    text = AGENT.replace("sys.exit", f"{renewed}sys.exit")
    agent = launch([sys.executable, "-c", text, *words], env, stderr=subprocess.PIPE)
    wait_until(says(slurm, "joined{2}"))
    wait_until(says(slurm, "trained{2}"))
    agent.send_signal(signal.SIGTERM)
    agent.communicate(timeout=150)


def test_a_user_s_signal_at_the_end_kills_no_process(slurm: Path) -> None:  # noqa: F811
    """The agent reports that the work has finished, and ends, while signals still arrive."""
    agent = begun("sh", "-c", "trap '' USR1; echo begun; sleep 1")
    time.sleep(0.3)  # the agent has its handlers
    while agent.poll() is None:
        agent.send_signal(signal.SIGUSR1)
        time.sleep(0.002)
    assert agent.communicate(timeout=150)
    assert agent.returncode == 0
    assert says(slurm, "finished{2}")()
