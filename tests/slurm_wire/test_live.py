"""Failures of Slurm's commands are sorted. Small programs stand in for the commands."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from programs import write_program
from slurm_hooks.errors import CommandRefused, MalleableError, MissingProgram, RetryLater
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.text import Command

ASK = Command(("squeue", "--all"))


def program(directory: Path, text: str, mode: int = 0o755) -> Live:
    """A Slurm with this shell script as squeue."""
    write_program(directory / "squeue", text).chmod(mode)
    return Live(5.0, str(directory))


def test_an_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    live = program(tmp_path, "echo warning >&2; echo $1; cat")
    assert live.ask(Command(("squeue", "--all"), "in\n", 3)) == "--all\nin\n"
    (asked,) = live.asked
    assert asked.rpcs == 3
    assert caplog.messages[0].endswith(" s: warning")


OPTIONS = ("SQUEUE_FORMAT2", "SQUEUE_PARTITION", "SCANCEL_STATE", "SCONTROL_ALL", "SLURM_CLUSTERS")


def test_times_are_seconds_and_options_in_the_environment_have_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in OPTIONS:
        monkeypatch.setenv(name, "odd")
    live = program(tmp_path, "env")
    names = dict(line.split("=", 1) for line in live.ask(ASK).splitlines() if "=" in line)
    assert names["SLURM_TIME_FORMAT"] == "%s"
    assert "odd" not in names.values()


@pytest.mark.parametrize(
    "complaint",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "error: Munge encode failed: Failed to access socket",
        "slurm_update error: Job is being set, try again",
        "slurm_load_jobs error: Unexpected missing socket error",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
    ],
)
def test_a_busy_slurm_is_asked_later(tmp_path: Path, complaint: str) -> None:
    live = program(tmp_path, f"echo '{complaint}' >&2; exit 1")
    with pytest.raises(RetryLater, match="squeue"):
        live.ask(ASK)


def test_a_refusal_names_the_command_and_its_answer(tmp_path: Path) -> None:
    live = program(tmp_path, "echo 'Access/permission denied' >&2; exit 1")
    with pytest.raises(CommandRefused, match=r"`squeue --all` failed with exit code 1: Access"):
        live.ask(ASK)


def test_a_command_that_hangs_is_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    live = program(tmp_path, "exec sleep 900")
    live.timeout_s = 0.2
    with pytest.raises(RetryLater, match=r"no answer in 0\.2 s"):
        live.ask(ASK)
    assert caplog.messages[0].endswith(" s: timed out")


def test_a_missing_command(tmp_path: Path) -> None:
    with pytest.raises(MissingProgram, match="squeue is not on this host"):
        Live(5.0, str(tmp_path)).ask(ASK)


@pytest.mark.parametrize("case", ["no execute bit", "a file for a directory"])
def test_a_command_that_cannot_be_run(tmp_path: Path, case: str) -> None:
    live = program(tmp_path, "true", 0o644)
    if case == "a file for a directory":
        live.bin_dir = str(tmp_path / "squeue")
    with pytest.raises(MalleableError):
        live.ask(ASK)


def test_odd_bytes_are_survived(tmp_path: Path) -> None:
    assert "a" in program(tmp_path, r"printf 'a\377b'").ask(ASK)
