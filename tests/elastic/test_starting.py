"""The start of torchrun's training processes, without torchrun."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.elastic.engines.torchrun.cold_worker import PROGRAM
from slurm_hooks.elastic.engines.torchrun.starting import Processes
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.mailbox import MAILBOX, SEAT

ENV = {k: v for k, v in os.environ.items() if not k.startswith("MALLEABLE_")}
Started = tuple[tuple[str, ...], dict[str, str]]


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int

    def poll(self) -> int:
        return self.code


class OneWarm(WarmPool):
    """A pool with a single process for any purpose."""

    def __init__(self) -> None:
        super().__init__([], 0)
        self.left = [Ended(1)]
        self.seen: list[Started] = []

    def take(
        self,
        args: Sequence[str],
        env: Mapping[str, str],
        outputs: list[Any],
        binding: tuple[str, ...] = (),
    ) -> Any:
        assert outputs == ["out", "err"]
        self.seen.append((tuple(args), dict(env)))
        return self.left.pop() if self.left else None


@pytest.fixture
def cold() -> list[Started]:
    """The process that torchrun itself has started."""
    return []


@pytest.fixture
def handler(cold: list[Started]) -> Any:
    """A handler with the interface of torch's SubprocessHandler."""

    class Handler:
        local_rank_id, _stdout, _stderr = 0, "out", "err"

        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Ended:
            cold.append((args, env))
            return Ended(7)

    return Handler


def script(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "script.py").touch()
    return (sys.executable, "-u", str(tmp_path / "script.py"), "--lr", "1")


def test_a_warm_process_is_taken_first_and_the_others_are_observed(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    processes, pool, words = Processes(), OneWarm(), script(tmp_path)
    warm = pool.left[0]
    processes.warm_pool = pool
    processes.install(handler)
    env = {**ENV, MAILBOX: "1:2", "LOCAL_RANK": "0"}
    assert handler()._popen(words, env) is warm
    assert cold == []
    handler()._popen(words, {**env, "LOCAL_RANK": "1"})
    assert [args for args, _ in pool.seen] == [words, words]
    assert [args for args, _ in cold] == [(*words[:2], "-c", PROGRAM, *words[2:])]


def test_without_a_mailbox_or_a_pool_a_worker_starts_as_in_torchrun(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    processes, words = Processes(), script(tmp_path)
    processes.install(handler)
    handler()._popen(words, {**ENV, "LOCAL_RANK": "0"})
    assert cold == [(words, {**ENV, "LOCAL_RANK": "0"})]


def test_another_launch_in_the_same_process_starts_each_worker_once(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    processes, first, second = Processes(), OneWarm(), OneWarm()
    for pool in (first, second):
        pool.left.clear()
        processes.warm_pool = pool
        processes.install(handler)
    handler()._popen(script(tmp_path), {**ENV, "LOCAL_RANK": "0"})
    assert (len(first.seen), len(second.seen), len(cold)) == (0, 1, 1)


def test_a_process_gets_its_seat_where_its_local_rank_differs(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    processes, pool = Processes(), OneWarm()
    pool.left.clear()
    processes.warm_pool = pool
    processes.install(handler)
    for handler.local_rank_id in (0, 1):
        handler()._popen(script(tmp_path), {**ENV, "LOCAL_RANK": "0"})
    assert [env.get(SEAT) for _, env in cold] == [None, "1"]
    assert pool.seen[1][1] == cold[1][1]


def test_the_exit_code_belongs_to_the_newest_round(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    """Warm or not, the first process of an agent begins another round."""
    processes = Processes()
    processes.warm_pool = pool = OneWarm()
    processes.install(handler)
    handler()._popen(script(tmp_path), {**ENV, "LOCAL_RANK": "0"})
    assert processes.exit_code() == 1
    assert pool.left == []
    handler()._popen(script(tmp_path), {**ENV, "LOCAL_RANK": "0"})
    assert processes.exit_code() == 7


def test_a_worker_gets_the_number_of_its_node_unless_the_user_has_set_it(
    handler: Any, cold: list[Started], tmp_path: Path
) -> None:
    processes, words = Processes(), script(tmp_path)
    processes.install(handler)
    for more in ({}, {"NODE_RANK": "7"}):
        handler()._popen(words, {**ENV, "LOCAL_RANK": "0", "GROUP_RANK": "3", **more})
    assert [env["NODE_RANK"] for _, env in cold] == ["3", "7"]
