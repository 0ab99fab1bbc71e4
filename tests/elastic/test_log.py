"""Errors that are passed over on purpose leave a log line, if the reader wants it."""

from __future__ import annotations

import io
import logging
import re
from pathlib import Path

import pytest

from slurm_hooks.elastic.batch.command import answer
from slurm_hooks.elastic.log import DEBUG, debug, suppressed
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory


@pytest.fixture(params=["1", ""])
def is_wanted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv(DEBUG, request.param)
    return bool(request.param)


def test_a_suppressed_error_leaves_a_line_if_it_is_wanted(
    is_wanted: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = list(logging.getLogger().handlers)
    with suppressed(OSError, ValueError, doing="reading the lease"):
        raise TimeoutError("timed out")
    with suppressed(OSError, doing="reading it again"):
        pass
    debug("no cause")
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2 * is_wanted
    if is_wanted:
        prefix = r"malleable: \d\d:\d\d:\d\d pid \d+ "
        assert re.fullmatch(f"{prefix}reading the lease: TimeoutError: timed out", lines[0])
        assert re.fullmatch(f"{prefix}no cause", lines[1])
    assert logging.getLogger().handlers == handlers  # the user's own


def test_other_errors_are_raised() -> None:
    with pytest.raises(KeyError), suppressed(OSError, doing="reading the lease"):
        raise KeyError


@pytest.mark.parametrize("kind", ["missing", "closed", "full"])
def test_an_error_is_passed_over_also_where_logging_fails(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DEBUG, "1")
    with open("/dev/full", "wb", buffering=0) as full:
        stderr = None if kind == "missing" else io.TextIOWrapper(full, write_through=True)
        if kind == "closed" and stderr is not None:
            stderr.close()
        monkeypatch.setattr("sys.stderr", stderr)
        with suppressed(OSError, doing="reading the lease"):
            raise TimeoutError


@pytest.mark.parametrize(
    "command", [["/nowhere/squeue"], ["sh", "-c", "echo no such job >&2; exit 1"]]
)
def test_the_reason_of_an_unreadable_lease_is_logged_if_wanted(
    is_wanted: bool, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert answer(command) == ""
    err = capfd.readouterr().err
    assert bool(err) == is_wanted
    assert not err or "is not in PATH" in err or ": no such job" in err


def test_the_user_s_settings_of_squeue_hide_no_fragment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQUEUE_PARTITION", "odd")
    assert "odd" not in answer(["env"])
    assert "SLURM_TIME_FORMAT=%s" in answer(["env"])


def test_events_in_a_healthy_directory_leave_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(DEBUG, "1")
    shared = SharedDirectory(tmp_path, "7")
    shared.open()
    shared.update(lambda s: s)
    shared.write_beat("ab", 1)
    shared.remove_beats(["ab"])
    assert shared.read_stage("1.0", "9.0") == 1
    assert capfd.readouterr().err == ""
