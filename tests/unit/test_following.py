"""The end of `malleable pool`: its job after signals such as a notebook's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from programs import write_programs

SLURM = {
    "sbatch": "echo 17",
    "squeue": "echo RUNNING",
    "scancel": 'sleep 0.5; echo "$@" >>cancelled',
}
BURST = (signal.SIGINT, *[signal.SIGTERM] * 6)  # of ipykernel 7.4 at the end of a kernel


def started(
    place: Path, words: Sequence[str], commands: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start it, with these programs in the place of Slurm's commands.

    A notebook sets FORCE_COLOR, which makes no terminal of a pipe.
    """
    write_programs(place, commands)
    settings = place / "malleable.toml"
    settings.write_text(f'[tick]\nslurm_bin = "{place}"\n')
    words = [words[0], f"--settings={settings}", *words[1:]]
    return subprocess.Popen(
        [sys.executable, "-m", "slurm_hooks.cli", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "FORCE_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def follower(place: Path, *options: str) -> subprocess.Popen[str]:
    """A follower that has printed the size of its job."""
    command = started(place, ["pool", "--max=4", *options, "--", "worker"], SLURM)
    assert command.stdout is not None
    assert command.stdout.readline() == "job 17: 1 running, 0 waiting\n"
    return command


@pytest.mark.parametrize("is_group", [False, True])
def test_a_burst_of_signals_cancels_once(tmp_path: Path, is_group: bool) -> None:
    command = follower(tmp_path, "--cancel-on-exit")
    for number in BURST:
        (os.killpg if is_group else os.kill)(command.pid, number)
        time.sleep(0.05)
    _, said = command.communicate(timeout=150)
    assert command.returncode == 130, said
    assert (tmp_path / "cancelled").read_text() == "17\n"
    assert said == "job 17: cancelled\n"


def test_without_the_option_the_job_continues(tmp_path: Path) -> None:
    command = follower(tmp_path)
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=150)
    assert command.returncode == 130
    assert said == "job 17 continues; to end it: scancel 17\n"
    assert not (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["pool", "--max=4", "--cancel-on-exit", "--", "true"],
        ["map", "--max=4", "--cancel-on-exit", "--dir=map", "--", "true", ":::", "a"],
    ],
)
def test_a_signal_while_the_job_is_submitted_waits_for_its_id(
    tmp_path: Path, words: list[str]
) -> None:
    slow = {**SLURM, "sbatch": "touch begun; sleep 1; echo 17"}
    command = started(tmp_path, words, slow)
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    command.send_signal(signal.SIGTERM)
    _, said = command.communicate(timeout=150)
    assert command.returncode == 130, said
    assert said.splitlines()[-1] == "job 17: cancelled"
    assert (tmp_path / "cancelled").read_text() == "17\n"
