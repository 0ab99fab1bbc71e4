from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_hooks.elastic.batch import comment_writer
from slurm_hooks.elastic.engines import kin
from slurm_hooks.protocol.jobpath import write_job_path

from .gang import Gang
from .lone_agent import Agent, alone
from .processes import end_all


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(autouse=True)
def adopts_no_more() -> Iterator[None]:
    """Undo the adoption: this process runs other tests too, and must not collect their daemons."""
    yield
    kin._libc.prctl(kin._PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture(autouse=True)
def nothing_stays_watched() -> Iterator[None]:
    """Clean up, so that a later test in this process can watch."""
    yield
    checkpoint = sys.modules.get("slurm_hooks.elastic.script.checkpoint")
    for watched in list(checkpoint._watching) if checkpoint else ():
        watched.end()


@pytest.fixture(autouse=True)
def nothing_is_written_into_the_next_test() -> Iterator[None]:
    yield
    for writer in comment_writer._writers.values():
        writer._wanted.clear()
    comment_writer._writers.clear()


@pytest.fixture(scope="session")
def job_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job_path(tmp_path_factory.mktemp("jobpath"))


@pytest.fixture
def gang(job_path: Path, tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(job_path, tmp_path)
    yield gang
    gang.stop()


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Agent:
    return alone(monkeypatch)
