"""Files where the tick writes, or files put there while it does.

No tick follows them, waits for them, overwrites them, or fails over them without a line.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from abuse.conftest import Row
from captured_slurm import recorded
from ledger.books import busy_slurm, one_tick, settings_in
from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.values import Settings
from slurm_hooks.tick.reconcile import tick

MOST_S = 5.0
HUGE = 1 << 40
VICTIM = "what nobody may touch\n"
Plant = Callable[[Path, Path], None]


def link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def dangling(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("made"))


def fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def directory(path: Path, _: Path) -> None:
    path.mkdir()


def sparse(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, HUGE)


def device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


PLANTS: tuple[Plant, ...] = (link, dangling, fifo, directory, sparse, device)
NAMES = (
    "ledger.sqlite",
    "ledger.sqlite-wal",
    "ledger.sqlite-shm",
    "metrics.prom",
)
LOCKS = ("tick.lock", "tick.lock.holder", "tick.lock.done")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "victim"
    path.write_text(VICTIM)
    path.chmod(0o600)
    yield path
    assert path.read_text() == VICTIM
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.with_name("made").exists()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    shipped = settings_in(tmp_path)
    state = Path(shipped.tick.state_dir)
    metrics = replace(shipped.metrics, textfile=str(state / "metrics.prom"))
    return replace(shipped, metrics=metrics, learn=replace(shipped.learn, enabled=True))


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_foreign_files_in_the_place_of_the_books(
    settings: Settings, victim: Path, name: str, plant: Plant, row: Row
) -> None:
    state = Path(settings.tick.state_dir)
    state.mkdir(mode=0o755)
    plant(state / name, victim)
    began = time.monotonic()
    report, lines = one_tick(busy_slurm(), settings)
    took = time.monotonic() - began
    assert report.plan.actions
    assert took < MOST_S
    row(f"{plant.__name__} at {name}", f"tick in {took:.1f} s, {len(lines)} line(s) of warning")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
@pytest.mark.parametrize("name", LOCKS)
def test_foreign_files_in_the_place_of_the_lock(
    settings: Settings, victim: Path, name: str, plant: Plant, row: Row
) -> None:
    lock = Path(settings.tick.lock)
    lock.parent.mkdir(mode=0o700, exist_ok=True)
    plant(lock.with_name(name), victim)
    began = time.monotonic()
    if plant is sparse:  # a plain file: its holes belong to no user
        tick(recorded("running"), settings)
    else:
        with pytest.raises(SettingsError, match=r"tick\.lock"):
            tick(recorded("running"), settings)
    took = time.monotonic() - began
    assert took < MOST_S
    row(f"{plant.__name__} at {name}", f"told within {took:.1f} s")


def test_a_directory_that_another_user_could_swap_is_not_used(tmp_path: Path, row: Row) -> None:
    """The swap is made between the check of the directory and the opening of a file in it."""
    everybody = tmp_path / "open"
    everybody.mkdir()
    everybody.chmod(0o777)
    settings = settings_in(everybody)
    below = replace(settings.tick, lock=str(everybody / "run" / "tick.lock"))
    settings = replace(settings, tick=below)
    with pytest.raises(SettingsError, match=r"others can write to .*open .*and so replace"):
        tick(recorded("running"), settings)
    sound = replace(settings.tick, lock=str(tmp_path / "run" / "tick.lock"))
    mixed = replace(settings, tick=sound)
    _, (line,) = one_tick(busy_slurm(), mixed)
    assert "and so replace" in line
    assert not list(everybody.glob("**/*.sqlite"))
    everybody.chmod(0o1777)  # as /tmp: users can rename only their own files
    assert one_tick(busy_slurm(), settings)[1] == ()
    row("state_dir and lock below a directory of mode 0777", "refused; used with 1777")


def test_files_of_the_tick_are_its_own(settings: Settings, row: Row) -> None:
    """With any umask: no other user opens the lock, and no other user writes any file."""
    before = os.umask(0)
    try:
        one_tick(busy_slurm(), settings)
    finally:
        os.umask(before)
    state, lock = Path(settings.tick.state_dir), Path(settings.tick.lock)
    entries = {
        p: stat.S_IMODE(p.stat().st_mode) for p in (*state.iterdir(), *lock.parent.iterdir())
    }
    plain = {path: mode for path, mode in entries.items() if path.is_file()}
    assert len(plain) >= 3
    assert not [path for path, mode in plain.items() if mode & 0o022]
    assert not [p for p, mode in plain.items() if p.name.startswith("tick.lock") and mode & 0o077]
    modes = ", ".join(f"{path.name} {mode:o}" for path, mode in sorted(plain.items()))
    row("modes with umask 0", modes)
