"""Fragments of a job may import two versions of the package: a site is upgraded while it runs."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import pytest

from .gang import Gang

pytestmark = [pytest.mark.torch]

LATER = {  # what a later version adds: a field of each record, each with a value of its own
    "rendezvous/state.py": [
        ("    sound: int = 0\n", "    sound: int = 0\n    later: int = 0\n"),
        ('    newest: str = ""\n', '    newest: str = ""\n    later: int = 0\n'),
        (
            "    tokens: tuple[str, ...] = ()\n",
            "    tokens: tuple[str, ...] = ()\n    later: int = 0\n",
        ),
        (
            "    launches: tuple[Launch, ...] = ()\n",
            "    launches: tuple[Launch, ...] = ()\n    later: int = 0\n",
        ),
    ],
    "rendezvous/codec.py": [
        ("    sound=_COUNT,\n", "    sound=_COUNT,\n    later=_COUNT,\n"),
        ("    newest=_WORDS,\n", "    newest=_WORDS,\n    later=_COUNT,\n"),
        ("_several(_ID))", "_several(_ID), later=_COUNT)"),
        ("longest=MOST_LAUNCHES),\n}", 'longest=MOST_LAUNCHES),\n    "later": _COUNT,\n}'),
    ],
    "rendezvous/rounds.py": [
        ("        formed_at=now,\n", "        formed_at=now,\n        later=2,\n")
    ],
    "rendezvous/launches.py": [("return replace(state, ", "return replace(state, later=4, ")],
    "agent/launched.py": [("digest[:16])", "digest[:16], later=3)")],
    "agent/membership.py": [("replace(me, ", "replace(me, later=1, ")],
}


@pytest.fixture
def later(job_path: Path, tmp_path: Path) -> Path:
    """The job path of a later version."""
    path = Path(shutil.copytree(job_path, tmp_path / "later"))
    for name, changes in LATER.items():
        file = path / "slurm_hooks" / "elastic" / name
        text = file.read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        file.write_text(text)
    return path


def test_agents_of_two_versions_train_together(gang: Gang, later: Path) -> None:
    """Each reads, and writes again, what the other has written."""
    gang.start(1, "2:3", 100_000)
    gang.job_path = later
    gang.extra["SLURM_JOB_END_TIME"] = str(int(time.time()) + 90_000)  # so this agent forms a round
    gang.start(2, "2:3", 100_000)
    gang.wait_world(2)
    document = json.loads(gang.state().splitlines()[0])
    assert document["round"][9:] == [2], "today's agent trains in a round with a later field"
    del gang.extra["SLURM_JOB_END_TIME"]
    gang.start(3, "2:3", 100_000)
    gang.wait_world(3)
    gang.cut_off(2, signal.SIGKILL)  # so today's agent forms the next
    gang.wait_world(2, since=time.time())
    (gang.work / "enough").touch()
    assert gang.wait_exit(1, 3) == [0, 0]
