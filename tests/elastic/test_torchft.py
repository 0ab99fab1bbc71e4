"""Real torchft replica groups on this host. The job can lose any of them."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from programs import write_programs
from waiting import wait_until

from .groups import Groups

pytestmark = [
    pytest.mark.skipif(find_spec("torchft") is None, reason="torchft is not installed"),
    pytest.mark.torch,
]


@pytest.fixture
def groups(job_path: Path, tmp_path: Path) -> Iterator[Groups]:
    groups = Groups(job_path, tmp_path)
    yield groups
    groups.stop()


def restarted(groups: Groups) -> list[int]:
    return sorted({int(b["fragment"]) for b in groups.begins() if b["restarts"]})


def is_whole(result: dict[str, float]) -> bool:
    return result["step"] > 0 and (result["lost"], result["twice"]) == (0, 0)


def test_each_host_is_lost_in_turn_and_no_sample_is_lost(groups: Groups) -> None:
    """The keeper of the lighthouse is killed in turn, until only later groups are left."""
    groups.add(1, 2, 3)
    groups.settle(3, 0.0)
    pauses, new = [], 4
    for _ in range(3):
        lost = groups.keeper()
        killed_at = time.time()
        groups.cut_off(lost, signal.SIGKILL)
        groups.settle(2, killed_at + 0.2)
        pauses.append(groups.pause(killed_at, (lost,)))
        assert groups.keeper() != lost
        grown_at = time.time()
        groups.add(new)
        groups.settle(3, grown_at)
        new += 1
    results = groups.finish()
    assert len(results) == 3
    assert all(is_whole(result) for result in results.values()), results
    assert len({result["weight"] for result in results.values()}) == 1
    assert restarted(groups) == [], groups.dump()
    assert len({r["lighthouse"] for r in groups.rounds()}) == 4
    assert "lost" in " ".join(str(r["cause"]) for r in groups.rounds())
    print("pauses after the loss of the lighthouse:", *(f"{p:.2f}" for p in pauses), "s")
    assert max(pauses) < 15


def test_leaves_as_asked_also_with_the_lighthouse(groups: Groups) -> None:
    groups.add(1, 2, 3)
    groups.settle(3, 0.0)
    first = groups.keeper()
    asked_at = groups.notify(first)
    groups.settle(2, asked_at)
    assert groups.wait_exit(first) == [0]
    assert groups.keeper() != first
    second = next(f for f in groups.alive() if f != groups.keeper())
    asked_again_at = groups.notify(second)
    groups.settle(1, asked_again_at)
    assert groups.wait_exit(second) == [0]
    results = groups.finish()
    assert [is_whole(result) for result in results.values()] == [True]
    assert restarted(groups) == []
    changes = [(r["cause"], r["size"]) for r in groups.rounds()][-2:]
    assert changes == [(f"left {first}", 2), (f"left {second}", 1)]
    groups.add(4)  # after the end there is no work left
    assert groups.wait_exit(4) == [0]
    assert "already finished" in groups.log(4)


@pytest.mark.nightly
def test_a_training_waits_below_the_minimum_and_goes_on(groups: Groups) -> None:
    groups.smallest = 2
    groups.add(1)
    wait_until((groups.work / "begins.jsonl").exists, explain=groups.dump)
    time.sleep(2.0)
    assert groups.group_steps() == []
    groups.add(2)
    groups.settle(2, 0.0)
    killed_at = time.time()
    groups.cut_off(2, signal.SIGKILL)
    wait_until(lambda: "lost 2" in groups.state(), explain=groups.dump)
    time.sleep(1.5)
    still_at = time.time()
    time.sleep(1.5)
    assert [s for s in groups.group_steps() if s[0] > still_at] == []
    assert groups.alive() == [1]
    groups.start(2, "1", 100_000, restarts=1)
    groups.settle(2, killed_at + 1.0)
    assert all(is_whole(result) for result in groups.finish().values())


class Pairs(Groups):
    """Groups of two nodes, as launch=srun starts them: agent 21 is on node 1 of fragment 2."""

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        group, node = divmod(fragment, 10)
        env = super().environment(group, nnodes, restarts)
        return {**env, "PET_NNODES": "2", "SLURM_PROCID": str(node), "MALLEABLE_UNIT": "2"}


@pytest.mark.nightly
def test_a_group_may_have_several_nodes(job_path: Path, tmp_path: Path) -> None:
    groups = Pairs(job_path, tmp_path)
    try:
        groups.add(10, 11, 20, 21)
        groups.settle(2, 0.0)
        asked_at = groups.notify(20, 21)
        groups.settle(1, asked_at)
        assert groups.wait_exit(20, 21) == [0, 0], groups.dump()
        (tmp_path / "enough").touch()
        assert groups.wait_exit(10, 11) == [0, 0], groups.dump()
        assert is_whole(json.loads((tmp_path / "finished-1").read_text()))
        assert restarted(groups) == []
    finally:
        groups.stop()


def test_says_so_when_there_is_no_torchft(groups: Groups, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "torchft.py").write_text("raise ImportError('not here')\n")
    groups.extra = {"PYTHONPATH": f"{tmp_path / 'hidden'}:{groups.job_path}"}
    groups.add(1)
    assert groups.wait_exit(1) == [1]
    assert "pip install torchft" in groups.log(1)
    assert "Traceback" not in groups.log(1)


class Elements(Groups):
    """Groups that are elements of a job array.

    Their Slurm keeps comments in files, and ends each agent that puts itself back.
    """

    def environment(self, fragment: int, nnodes: str, restarts: int = 0) -> dict[str, str]:
        env = super().environment(fragment, nnodes, restarts)
        element = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(fragment)}
        return {**env, **element, "PATH": f"{self.work}:{env['PATH']}"}

    def comment(self, fragment: int) -> str:
        """The comment without the cost of an interruption, which each group reports within
        a minute.
        """
        path = self.work / f"comment.77_{fragment}"
        return path.read_text().replace(";h{1}", "") if path.exists() else ""


SLURM = {
    "squeue": 'case "$*" in *%k) cat {place}/comment.${2#--job=} ;; esac',
    "scontrol": """case "$1" in
update) printf %s "${3#Comment=}" > {place}/comment.${2#JobId=} ;;
requeue) kill $PPID ;;
esac""",
}


def test_groups_say_where_they_stand_and_put_themselves_back(
    job_path: Path, tmp_path: Path
) -> None:
    write_programs(tmp_path, SLURM)
    groups = Elements(job_path, tmp_path)
    for fragment in (1, 2):
        (tmp_path / f"comment.77_{fragment}").write_text("mine")
    try:
        groups.add(1)
        wait_until(lambda: groups.comment(1) == "joined{0};mine", explain=groups.dump)
        groups.add(2)
        groups.settle(2, 0.0)
        wait_until(lambda: groups.comment(1) == "trained{0};mine", explain=groups.dump)
        groups.notify(1)
        assert groups.wait_exit(1) == [128 + signal.SIGTERM]
        assert groups.comment(1) == "trained{0};mine"
        (tmp_path / "enough").touch()
        assert groups.wait_exit(2) == [0], groups.dump()
        assert groups.comment(2) == "finished{0};mine"
    finally:
        groups.stop()
