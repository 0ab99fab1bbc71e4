"""The switch: a file. A command that cannot see it says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Callable, Optional

import pytest

from captured_slurm import CAPTURED, Recorded, as_asked_today, recorded
from planning.whole_ticks import settings_in
from programs import write_program
from slurm_hooks.commands.switch import STRANGE_HOST
from slurm_hooks.errors import SettingsError
from slurm_hooks.model import Level, Off
from slurm_hooks.report.why import note_text
from slurm_hooks.settings.values import Settings
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.reconcile import tick
from slurm_hooks.tick.switch import find_no_growth, find_off, switch_off, switch_on
from unit.calls import Output, job_id, run

not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")


# -- the file


def test_off_and_on(tmp_path: Path) -> None:
    place = str(tmp_path / "state")
    assert find_off(place) is None
    off = switch_off(place, "fire\nin the\nroom")
    assert off.reason == "fire"
    assert abs(off.since.timestamp() - time.time()) < 60
    assert find_off(place) == off
    assert switch_on(place) == off
    assert find_off(place) is None
    assert switch_on(place) is None
    assert os.listdir(place) == []


def test_a_second_off_keeps_the_date_and_takes_the_new_reason(tmp_path: Path) -> None:
    first = switch_off(str(tmp_path), "one")
    os.utime(tmp_path / "off", (1_700_000_000,) * 2)
    second = switch_off(str(tmp_path), "two")
    assert (second.since.timestamp(), second.reason) == (1_700_000_000, "two")
    assert switch_off(str(tmp_path)) == second
    assert first.since != second.since


def test_users_can_read_the_reason_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        switch_off(str(tmp_path), "x")
    finally:
        os.umask(before)
    assert (tmp_path / "off").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("name", "find"), [("off", find_off), ("no-growth", find_no_growth)])
@pytest.mark.parametrize("kind", ["empty", "directory", "link", "dangling", "pipe", "binary"])
def test_a_file_of_any_kind_is_a_switch(
    kind: str, name: str, find: Callable[[str], Optional[Off]], tmp_path: Path
) -> None:
    path, other = tmp_path / name, tmp_path / "other"
    other.write_text("secret")
    makes = {
        "empty": path.touch,
        "directory": path.mkdir,
        "link": lambda: path.symlink_to(other),
        "dangling": lambda: path.symlink_to("nowhere"),
        "pipe": lambda: os.mkfifo(path),
        "binary": lambda: path.write_bytes(b"\xff\x1b[31m\x00" * 200),
    }
    assert find(str(tmp_path)) is None
    makes[kind]()
    off = find(str(tmp_path))
    assert off is not None
    assert "secret" not in off.reason
    assert off.reason.isprintable()
    assert len(off.reason) <= 200


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("theirs")
    (tmp_path / "off").symlink_to(other)
    (tmp_path / f".off.{os.getpid()}").symlink_to(other)
    switch_off(str(tmp_path), "mine")
    assert other.read_text() == "theirs"
    assert (tmp_path / "off").read_text() == "mine\n"


def test_a_directory_that_switches_off_takes_no_reason(tmp_path: Path) -> None:
    (tmp_path / "off").mkdir()
    assert switch_off(str(tmp_path), "fire") == find_off(str(tmp_path))
    assert os.listdir(tmp_path) == ["off"]
    with pytest.raises(SettingsError, match=f"still switched off by {tmp_path}/off: remove it"):
        switch_on(str(tmp_path))


@pytest.mark.parametrize("second", [10**14, -(10**14)])
def test_a_date_that_no_calendar_has_switches_off(second: int) -> None:
    """As `touch --date=@100000000000000` gives it. ext4 and xfs keep no date beyond 2446
    and 2486.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        path = Path(place, "off")
        path.touch()
        os.utime(path, (second, second))
        if path.stat().st_mtime != second:
            pytest.skip("/dev/shm keeps no such date")
        off = find_off(place)
        assert off is not None
        assert abs(off.since.timestamp() - time.time()) < 60
        assert switch_on(place) == off


def test_two_people_switch_off_at_once(tmp_path: Path) -> None:
    """Neither fails while a third person switches on repeatedly."""
    code = (
        "import sys; from slurm_hooks.tick.switch import switch_off, switch_on\n"
        "for i in range(1500): switch_off(sys.argv[1], f'{sys.argv[2]} {i}')"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    both = [subprocess.Popen([*argv, who], stderr=subprocess.PIPE) for who in ("ann", "bob")]
    while any(one.poll() is None for one in both):
        switch_on(str(tmp_path))
    assert [one.communicate()[1] for one in both] == [b"", b""]


def unsearchable(tmp_path: Path) -> str:
    """A state directory that not even root can read: a file is in its place."""
    (tmp_path / "file").write_text("")
    return str(tmp_path / "file" / "state")


def test_an_invisible_switch_is_not_taken_for_absent(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="whether malleable jobs are switched off"):
        find_off(unsearchable(tmp_path))


@not_root
def test_a_closed_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0)
    with pytest.raises(SettingsError, match="Permission denied"):
        find_off(str(tmp_path / "state"))


def unsighted(tmp_path: Path) -> Settings:
    """Settings whose state directory cannot be read."""
    settings = settings_in(tmp_path)
    return replace(settings, tick=replace(settings.tick, state_dir=unsearchable(tmp_path)))


def test_a_tick_that_cannot_see_the_switch_changes_no_job(tmp_path: Path) -> None:
    port = recorded("running")
    with pytest.raises(SettingsError):
        tick(port, unsighted(tmp_path))
    assert all(c.argv[0] == "squeue" or c.stdin.startswith("show ") for c in port.commands)


def test_a_reader_that_cannot_see_the_switch_gets_a_message(tmp_path: Path) -> None:
    settings = unsighted(tmp_path)
    report = tick(recorded("running"), settings, is_dry=True)
    assert any("whether malleable jobs are switched off" in note_text(n) for n in report.plan.notes)


def test_observing_writes_no_command_and_completes_a_tick(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings = replace(settings, mode=replace(settings.mode, level="observe"))
    port = recorded("held")
    began = time.time()
    report = tick(port, settings)
    assert report.plan.actions
    assert report.is_dry
    assert report.plan.level is Level.OBSERVE
    assert all(c.argv[0] == "squeue" or c.stdin.startswith("show ") for c in port.commands)
    assert os.stat(f"{settings.tick.lock}.done").st_mtime > began - 1


class ThrownAtTheSecondLook:
    """A Slurm in which somebody changes the switch just before the second question about jobs."""

    def __init__(self, port: Recorded, throw: Callable[[], object]) -> None:
        self.port, self.throw = port, throw
        self.asked = port.asked

    def ask(self, command: Command) -> str:
        is_second = any(c.argv[0] == "squeue" for c in self.port.commands)
        if command.argv[0] == "squeue" and is_second:
            self.throw()
        return self.port.ask(command)


@pytest.mark.parametrize("name", ["off", "no-growth"])
def test_a_tick_in_flight_starts_no_fragment_any_more(name: str, tmp_path: Path) -> None:
    settings, port = settings_in(tmp_path), recorded("held")
    place = Path(settings.tick.state_dir)

    def throw() -> None:
        place.mkdir()
        (place / name).write_text("fire\n")

    report = tick(ThrownAtTheSecondLook(port, throw), settings)
    assert not any("release" in c.stdin for c in port.commands)
    notes = map(note_text, report.plan.notes)
    assert any("not done: grow" in note and "(fire)" in note for note in notes)


# -- the commands


def test_off_is_seen_by_all_commands(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    code, out, _ = run(capsys, "off", "--reason", "the file system is full")
    assert code == 0
    assert out.count("switched off since") == 1
    assert "release " not in ((site / "told").read_text() if (site / "told").exists() else "")
    for command in (["explain", word], ["plan"], ["reconcile"]):
        assert "(the file system is full)" in run(capsys, *command)[1], command
    assert "wait" in run(capsys, "explain", word)[1]
    assert "the file system is full" in run(capsys, "status")[2]
    switch = json.loads(run(capsys, "status", "--json")[1])["off"]
    assert switch["reason"] == "the file system is full"
    assert json.loads(run(capsys, "plan", "--json")[1])["level"] == "off"
    assert json.loads(run(capsys, "reconcile", "--json")[1])["mode"] == "off"
    assert "on again" in run(capsys, "on")[1]
    assert "were already on" in run(capsys, "on")[1]
    run(capsys, "reconcile")
    assert "release " in (site / "told").read_text()


def test_no_growth_is_seen_by_all_commands(capsys: Output, site: Path) -> None:
    word = job_id(capsys)
    assert json.loads(run(capsys, "status", "--json")[1])["no_growth"] is None
    place = site / "state" / "no-growth"
    place.parent.mkdir(exist_ok=True)
    place.write_text("Lustre is busy: load 412\n")
    for command in (["explain", word], ["plan"], ["reconcile"]):
        assert "(Lustre is busy: load 412)" in run(capsys, *command)[1], command
    assert "(Lustre is busy: load 412)" in run(capsys, "status")[2]
    no_growth = json.loads(run(capsys, "status", "--json")[1])["no_growth"]
    assert no_growth["reason"] == "Lustre is busy: load 412"
    assert json.loads(run(capsys, "plan", "--json")[1])["level"] == "on"
    assert "release " not in ((site / "told").read_text() if (site / "told").exists() else "")
    code, _, err = run(capsys, "test", "--user", "nobody")
    assert code == 64
    assert "Lustre is busy" in err
    place.unlink()
    run(capsys, "reconcile")
    assert "release " in (site / "told").read_text()


def test_json_of_the_switch(capsys: Output, site: Path) -> None:
    off = json.loads(run(capsys, "off", "--json")[1])
    assert off["off"]["since"]
    assert off["tick"]["mode"] == "off"
    assert json.loads(run(capsys, "on", "--json")[1])["was_off"]["since"] == off["off"]["since"]


def test_the_tick_of_off_is_written_down(capsys: Output, site: Path) -> None:
    assert run(capsys, "reconcile")[2] == ""
    assert run(capsys, "off")[2] == ""
    report = json.loads(run(capsys, "report", "--since", "2020-01-01", "--json")[1])
    assert report["ticks"]["count"] == 2


def test_a_tick_of_off_that_cannot_be_written_down_says_so(capsys: Output, site: Path) -> None:
    (site / "state" / "ledger.sqlite").mkdir(parents=True)
    code, out, err = run(capsys, "off")
    assert (code, "switched off" in out) == (0, True)
    assert "warning: this tick is not in the ledger" in err


def test_off_works_with_wrong_settings(capsys: Output, site: Path) -> None:
    path = site / "malleable.toml"
    path.write_text(path.read_text() + "colour = 1\n[lease]\nlength_s = 1\n")
    code, out, err = run(capsys, "off")
    assert code == 0
    assert "switched off" in out
    assert "running fragments end with their leases" in err
    assert find_off(str(site / "state")) is not None
    assert run(capsys, "reconcile")[0] == 78
    assert run(capsys, "on")[0] == 0
    assert find_off(str(site / "state")) is None


def test_off_works_with_settings_that_are_no_toml(capsys: Output, site: Path) -> None:
    (site / "malleable.toml").write_text("[[[")
    code, _, err = run(capsys, "off", "--state-dir", str(site / "state"))
    assert code == 0
    assert "not valid TOML" in err
    assert find_off(str(site / "state")) is not None


def test_off_while_slurm_is_away(capsys: Output, site: Path) -> None:
    (site / "bin" / "squeue").write_text("#!/bin/sh\necho Unable to contact >&2\nexit 1\n")
    code, out, err = run(capsys, "off")
    assert code == 0
    assert "switched off" in out
    assert "the next tick sends the fragments away, within 10 s" in err


def test_off_has_an_exit_code_if_slurm_refuses_a_change(capsys: Output, site: Path) -> None:
    answer = (CAPTURED / "22.05" / "running.squeue.txt").read_text()
    (site / "held.squeue.txt").write_text(as_asked_today(answer))
    scontrol = site / "bin" / "scontrol"
    write_program(site / "bin" / "scancel", "exit 0")
    text = scontrol.read_text().replace("held.", "running.")
    scontrol.write_text(text.replace(f">> {site}/told", ">&2; exit 1"))
    code, out, err = run(capsys, "off")
    assert "refused by Slurm" in out
    assert code == 75
    assert "fragments may keep their nodes until the next tick" in err


def test_off_in_the_same_place_by_another_name_ticks(capsys: Output, site: Path) -> None:
    run(capsys, "reconcile")
    _, out, err = run(capsys, "off", "--state-dir", f"{site}/state/../state/")
    assert err == ""
    assert "tick at" in out


def test_off_on_a_host_without_ticks_says_so(capsys: Output, site: Path) -> None:
    """Typed on a login node, it would change nothing where the ticks run."""
    assert STRANGE_HOST in run(capsys, "off")[2]


def test_off_elsewhere_says_so(capsys: Output, site: Path) -> None:
    code, _, err = run(capsys, "off", "--state-dir", str(site / "other"))
    assert code == 0
    assert "ticks with these settings read the switch elsewhere" in err


def test_off_that_cannot_be_written(capsys: Output, site: Path) -> None:
    (site / "state").write_text("in the way")
    code, _, err = run(capsys, "off")
    assert code == 78
    assert "tick.state_dir" in err


def test_observing_is_said(capsys: Output, site: Path) -> None:
    path = site / "malleable.toml"
    path.write_text(path.read_text().replace('"on"', '"observe"'))
    word = job_id(capsys)
    code, out, _ = run(capsys, "reconcile")
    assert code == 0
    assert "would grow" in out
    assert not (site / "told").exists()
    assert "only print their actions" in out
    assert "only print their actions" in run(capsys, "explain", word)[1]
    assert "only print their actions" in run(capsys, "status")[2]


def test_a_full_disk_takes_the_reason_and_not_the_switch(tmp_path: Path) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from slurm_hooks.tick.switch import switch_off; "
        "print(switch_off(sys.argv[1], 'fire').reason)"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["off"]
    assert find_off(str(tmp_path)) is not None
