"""The exchange of the reinforcement learning recipe: kills, restarts, equal names, a full queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from engines.recipes import EXAMPLES
from waiting import wait_until

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.engines, pytest.mark.timeout(300)]
RECIPE = EXAMPLES / "reinforcement"
# Writes large rollouts without end.
WRITER = """
import sys
from pathlib import Path
import torch
from exchange import Exchange
exchange, number = Exchange(Path(sys.argv[1])), 0
while True:
    number += 1
    exchange.put(f"00000000.{sys.argv[2]}.{number}.pt", {"all": torch.full((400_000,), number)})
"""


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(RECIPE))
    return __import__("exchange")


@contextmanager
def started(*words: str, log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the recipe, which is killed at the end of the block."""
    environment = {**os.environ, "PYTHONPATH": str(RECIPE), "OMP_NUM_THREADS": "1", **more}
    with log.open("ab") as out:
        argv = [sys.executable, *words]
        process = subprocess.Popen(argv, env=environment, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def words_of(log: Path, verb: str) -> list[str]:
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines if line.startswith(f"{verb} ")]


def test_a_worker_killed_during_a_write_leaves_whole_rollouts(
    tmp_path: Path, exchange: ModuleType
) -> None:
    place = exchange.Exchange(tmp_path)
    drafts = tmp_path / "drafts"
    for life in range(3):
        before = set(drafts.iterdir())
        words = ("-c", WRITER, str(tmp_path), f"w{life}")
        with started(*words, log=tmp_path / "log"):
            wait_until(lambda life=life: f".w{life}." in "".join(place.waiting()))
            wait_until(lambda before=before: set(drafts.iterdir()) - before, every_s=0.001)
    assert list(drafts.iterdir())  # a kill has met a worker that wrote
    rollouts = [place.get(name) for name in place.waiting()]
    assert rollouts
    assert all(one is not None and len(set(one["all"].tolist())) == 1 for one in rollouts)


def test_two_workers_with_the_same_name_have_separate_rollouts(
    tmp_path: Path, exchange: ModuleType
) -> None:
    exchange.Exchange(tmp_path).publish(0, policy_weights())
    words = (str(RECIPE / "worker.py"), f"--place={tmp_path}")
    log = tmp_path / "log"
    with (
        started(*words, log=log, MALLEABLE_FRAGMENT="3"),
        started(*words, log=log, MALLEABLE_FRAGMENT="3"),
    ):
        place = exchange.Exchange(tmp_path)
        seen: set[str] = set()

        def is_of_both() -> bool:
            waiting = set(place.waiting())
            seen.update(waiting)
            if len({name.split(".")[1] for name in seen}) == 2:
                return True
            place.remove(waiting)  # a worker that began first must not fill the queue
            return False

        wait_until(is_of_both)
    seen.update(place.waiting())
    assert len(words_of(log, "queued")) <= len(seen) <= len(words_of(log, "begun"))


def test_workers_stop_at_a_full_queue_and_at_its_end(tmp_path: Path, exchange: ModuleType) -> None:
    place = exchange.Exchange(tmp_path)
    place.publish(0, policy_weights())
    words = (str(RECIPE / "worker.py"), f"--place={tmp_path}")
    log = tmp_path / "log"
    with started(*words, log=log, MALLEABLE_FRAGMENT="0") as worker:
        wait_until(lambda: len(place.waiting()) == exchange.FULL)
        time.sleep(1.0)
        assert len(place.waiting()) == exchange.FULL
        place.set_over(True)
        assert worker.wait(60) == 0


def test_a_worker_that_is_asked_to_leave_ends_its_rollout(
    tmp_path: Path, exchange: ModuleType
) -> None:
    place = exchange.Exchange(tmp_path)
    place.publish(0, policy_weights())
    words = (str(RECIPE / "worker.py"), f"--place={tmp_path}", "--pace=1")
    log = tmp_path / "log"
    with started(*words, log=log, MALLEABLE_FRAGMENT="0") as worker:
        wait_until(lambda: words_of(log, "begun"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 128 + signal.SIGTERM
    assert words_of(log, "begun") == words_of(log, "queued") == place.waiting()


def test_missing_weights_are_searched_again(tmp_path: Path, exchange: ModuleType) -> None:
    """A directory on NFS may list a removed file, and a reader may get an empty file."""
    place = exchange.Exchange(tmp_path)
    (tmp_path / "weights" / "00000007.pt").write_bytes(b"PK\x03\x04")
    assert place.newest(-1) is None
    (tmp_path / "weights" / "00000008.pt").symlink_to(tmp_path / "gone")
    assert place.newest(-1) is None
    place.publish(9, {"a": torch.ones(1)})
    assert place.newest(-1)[0] == 9
    assert place.newest(9) is None


def test_a_trainer_that_is_killed_repeatedly_counts_each_rollout_once(
    tmp_path: Path, exchange: ModuleType
) -> None:
    place = exchange.Exchange(tmp_path)
    log, notes = tmp_path / "worker.log", tmp_path / "trainer.log"
    place.queue.joinpath("00000000.9-damaged.1.pt").write_bytes(b"no rollout")
    place.queue.joinpath("00000099.9-ahead.1.pt").write_bytes(b"of another run")
    words = (str(RECIPE / "trainer.py"), f"--place={tmp_path}", "--versions=8", "--rollouts=2")
    player = (str(RECIPE / "worker.py"), f"--place={tmp_path}", "--pace=0.05")
    with started(*player, log=log, MALLEABLE_FRAGMENT="0") as worker:
        for version in (2, 4):
            with started(*words, log=notes):
                wait_until(has_reached(tmp_path, version), every_s=0.01)
            put_again(place)
        with started(*words, log=notes) as trainer:
            assert trainer.wait(120) == 0
        assert worker.wait(60) == 0
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    taken, queued = words_of(notes, "taken"), words_of(log, "queued")
    dropped = set(words_of(notes, "dropped")) & set(queued)
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(queued)
    assert saved["version"] == 8
    assert saved["counts"]["taken"] == 16 == len(queued) - len(dropped) - len(place.waiting())
    assert words_of(notes, "unreadable") == ["00000000.9-damaged.1.pt"]
    assert "00000099.9-ahead.1.pt" in words_of(notes, "dropped")


def put_again(place: Any) -> None:
    """A rollout of the checkpoint, as if the trainer had died before it removed it."""
    saved = torch.load(place.place / "checkpoint.pt", weights_only=True)
    policy = __import__("policy")
    place.put(saved["from"][0], policy.play(policy.Policy()))


def has_reached(place: Path, version: int) -> Callable[[], bool]:
    return (place / "weights" / f"{version:08}.pt").exists


def policy_weights() -> dict[str, object]:
    weights: dict[str, object] = __import__("policy").Policy().state_dict()
    return weights
