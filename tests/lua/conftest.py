"""The interpreters that the modules of the submit script have to run under."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(params=["lua5.1", "lua5.3", "lua5.4"])
def lua(request: pytest.FixtureRequest) -> str:
    """An interpreter. Slurm on Debian is linked to 5.1, other builds to newer versions."""
    path = shutil.which(str(request.param))
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    return path
