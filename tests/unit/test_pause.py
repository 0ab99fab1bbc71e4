"""An operator's hold and release between two ticks."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from planning.whole_ticks import one_tick, settings_in
from slurm_hooks.commands.hold import hold, release
from slurm_hooks.errors import RetryLater

MARK = "malleable{min=0,max=2,unit=1,engine=pool,frags=2,lease=600,hole=120}"


def test_a_release_that_misses_a_fragment_that_just_ended_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mark comes back with it, and holds the whole job."""
    monkeypatch.chdir(tmp_path)
    settings = settings_in(tmp_path)
    slurm = FakeSlurm({"n1": "", "n2": ""})
    slurm.submit(1, 2, MARK)
    one_tick(slurm)
    slurm.advance(10)
    assert hold(slurm, settings, 1) == 2
    slurm.outcome = lambda element, ran_s: 1 if element.index == 0 else None
    slurm.advance(2)
    assert slurm.elements["1_0"].state == "FAILED"
    with pytest.raises(RetryLater, match="still held, since the hold of 1_0 ends"):
        release(slurm, settings, 1)
    one_tick(slurm)
    assert release(slurm, settings, 1) == 1
    slurm.outcome = lambda element, ran_s: None
    for _ in range(12):
        slurm.advance(30)
        one_tick(slurm)
    assert slurm.elements["1_0"].state == "RUNNING"
