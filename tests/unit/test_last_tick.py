"""Users see that no tick runs: without a tick no job starts."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from slurm_hooks import cli
from slurm_hooks.commands.following import sizes
from slurm_hooks.settings.file import load
from unit.calls import Output, job_id


def ran(site: Path, seconds_ago: float, name: str = "tick.lock.done") -> None:
    """Make the file that a tick of so long ago would have left."""
    path = site / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    moment = time.time() - seconds_ago
    os.utime(path, (moment, moment))


def said(capsys: Output, *words: str) -> str:
    assert cli.main(words) == 0
    printed = capsys.readouterr()
    return printed.out + printed.err


# The ledger is the only file of the two that ordinary users can see.
@pytest.mark.parametrize("name", ["tick.lock.done", "state/ledger.sqlite"])
def test_a_silence_of_two_intervals_is_reported(capsys: Output, site: Path, name: str) -> None:
    settings = site / "malleable.toml"
    settings.write_text(f"{settings.read_text()}every_s = 30\n")
    job = job_id(capsys)
    for words in (["status"], ["status", job], ["explain", job]):
        ran(site, 75, name)
        line = said(capsys, *words)
        assert re.search(r"no tick for (7[5-9]|8\d) seconds, since", line)
        assert "(expected every 30 s): no job can start or grow" in line
        ran(site, 20, name)
        assert "no tick" not in said(capsys, *words)


def test_a_slow_tick_of_a_short_interval_is_no_silence(capsys: Output, site: Path) -> None:
    """Slurm may take half a minute to answer. Jobs start again right afterwards."""
    ran(site, 45)
    assert "no tick" not in said(capsys, "status")
    ran(site, 75)
    assert "(expected every 10 s)" in said(capsys, "status")


def test_reading_the_ledger_hides_no_silence(capsys: Output, site: Path) -> None:
    """A reader touches SQLite's shared memory, and makes an empty log of changes."""
    ran(site, 75, "state/ledger.sqlite")
    ran(site, 5, "state/ledger.sqlite-shm")
    ran(site, 5, "state/ledger.sqlite-wal")
    assert re.search(r"no tick for (7[5-9]|8\d) seconds, since", said(capsys, "status"))
    (site / "state" / "ledger.sqlite-wal").write_text("a change")
    assert "no tick" not in said(capsys, "status")


def test_before_the_first_tick_there_is_a_line_too(capsys: Output, site: Path) -> None:
    assert "this host does not know of a tick" in said(capsys, "explain", job_id(capsys))
    assert json.loads(said(capsys, "status", "--json"))["last_tick"] is None
    ran(site, 5)
    assert json.loads(said(capsys, "status", "--json"))["last_tick"].endswith("+00:00")


def test_a_pool_s_follower_prints_why_no_worker_starts(site: Path) -> None:
    settings = load(site / "malleable.toml")
    ran(site, 75)
    line = sizes(settings, {"PENDING": 2})
    assert line.startswith("0 running, 2 waiting; no tick since ")
    assert sizes(settings, {"PENDING": 2}) == line, "the line stays as it is while nothing changes"
    assert sizes(settings, {"RUNNING": 1, "PENDING": 1}) == "1 running, 1 waiting"
    ran(site, 5)
    assert sizes(settings, {"PENDING": 2}) == "0 running, 2 waiting"
