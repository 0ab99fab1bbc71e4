from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.gang import Gang
from slurm_hooks.jobpath import write_job_path


@pytest.fixture(scope="session")
def job_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_job_path(tmp_path_factory.mktemp("jobpath"))


@pytest.fixture
def gang(job_path: Path, tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(job_path, tmp_path)
    yield gang
    gang.stop()
