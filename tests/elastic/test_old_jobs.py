"""Files that ended jobs have left beside the directory of a later job."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic.agent.old_jobs import OLD_S, remove_old_jobs, remove_old_jobs_in_background
from slurm_hooks.elastic.batch.remark import is_first
from slurm_hooks.elastic.engines.gang.crew import Crew
from slurm_hooks.elastic.engines.gang.secret import job_secret
from slurm_hooks.elastic.engines.order import Order
from slurm_hooks.elastic.farewell import note_whether_enough
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.state import Member, join
from slurm_hooks.elastic.script.turn import turn
from waiting import wait_until

from .gang import Gang

ME = Member("a" * 16, 1, 0, "1.0", "n1", ends=9000)


def job(place: Path, job_id: int) -> dict[str, str]:
    """The environment of an ended job, with all its files in its directory."""
    env = {"MALLEABLE_DIR": str(place), "MALLEABLE_JOB_ID": str(job_id)}
    for directory in (place, place / "groups" / "3"):
        shared = SharedDirectory(directory, str(job_id))
        shared.open()
        shared.update(lambda state: join(state, ME))
        shared.write_beat(ME.token, 1)
        shared.write_stage("1.0", "1.0", 2)
        shared.log_round("{}")
        shared.write_words("b" * 16, ["train.py"], ME.token)
        (directory / f"launch-{'b' * 16}.json.{ME.token}").touch()
    job_secret(place)
    note_whether_enough(env, False)
    with turn(env):
        pass
    for name in ("last-step.pt", "last-step-2.pt", "last-step.pt.3.7.0.99.0.new"):
        (place / name).write_text("as large as a model")
    leave_round_of_own_engine(env)
    is_first(place, "your flag wins")
    return env


def leave_round_of_own_engine(env: dict[str, str]) -> None:
    """Leave a round of our own engine, as an agent that is killed in it."""
    order = Order(("true",))
    engine: Any = SimpleNamespace(
        variables=lambda _world: {}, lay_out=lambda _world: {"hosts": "n1"}
    )
    crew = Crew(order, {**env, "MALLEABLE_ENGINE": "of_site"}, "n1", lambda: b"secret", engine)
    folder = crew._folder_of(4)
    crew._lay_out(folder, engine.lay_out(None))
    crew.close()


def age(place: Path, by_s: float = OLD_S + 60) -> None:
    then = time.time() - by_s
    for path in [*place.rglob("*"), place]:
        os.utime(path, (then, then), follow_symlinks=False)


@pytest.fixture
def later(tmp_path: Path) -> dict[str, str]:
    return job(tmp_path / ".malleable-0" / "500", 500)


def remove(env: dict[str, str]) -> None:
    remove_old_jobs(env, time.time() - OLD_S)


def beside(env: dict[str, str], name: str) -> Path:
    place = Path(env["MALLEABLE_DIR"]).with_name(name)
    job(place, 77)
    age(place)
    return place


def test_all_files_of_an_old_job_are_removed(
    later: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    old = beside(later, "77")
    remove_old_jobs_in_background(later)
    wait_until(lambda: not old.exists())
    assert Path(later["MALLEABLE_DIR"], "last-step.pt").exists()
    wait_until(lambda: "its last change was 30 days ago or more" in capfd.readouterr().err)


@pytest.mark.torch
def test_an_agent_removes_old_files_while_it_trains(gang: Gang) -> None:
    pytest.importorskip("torch")
    gang.shared = gang.work / ".malleable-0" / "77"
    old = gang.shared.with_name("76")
    job(old, 76)
    age(old)
    gang.start(1, "1:1", 5)
    assert gang.wait_exit(1) == [0]
    assert not old.exists()
    assert gang.shared.exists()


@pytest.mark.parametrize("fresh", ["", "state.1", "beats/aaaaaaaaaaaaaaaa", "groups/3/beats"])
def test_a_job_that_still_writes_keeps_all(later: dict[str, str], fresh: str) -> None:
    old = beside(later, "77")
    os.utime(old / fresh)
    before = sorted(old.rglob("*"))
    remove(later)
    assert sorted(old.rglob("*")) == before


@pytest.mark.parametrize("name", ["77.sav", "x77", "results", "-77"])
def test_other_names_are_kept(later: dict[str, str], name: str) -> None:
    old = beside(later, name)
    before = sorted(old.rglob("*"))
    remove(later)
    assert sorted(old.rglob("*")) == before


def test_a_directory_of_no_job_is_kept(later: dict[str, str]) -> None:
    other = Path(later["MALLEABLE_DIR"]).with_name("2025")
    other.mkdir()
    (other / "last-step.pt").write_text("the user's own")
    age(other)
    remove(later)
    assert (other / "last-step.pt").exists()


def test_the_user_s_own_files_and_their_directory_are_kept(later: dict[str, str]) -> None:
    old = beside(later, "77")
    (old / "notes.txt").write_text("mine")
    (old / "groups" / "model.pt").write_text("mine")
    (old / "mine").mkdir()
    (old / "mine" / "last-step.pt").write_text("mine")
    age(old)
    remove(later)
    left = {str(path.relative_to(old)) for path in old.rglob("*") if path.is_file()}
    assert left == {"notes.txt", "groups/model.pt", "mine/last-step.pt"}


def test_no_link_is_followed(later: dict[str, str], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "77"
    job(elsewhere, 77)
    age(elsewhere)
    before = sorted(elsewhere.rglob("*"))
    above = Path(later["MALLEABLE_DIR"]).parent
    (above / "78").symlink_to(elsewhere)
    old = beside(later, "79")
    (old / "last-step-9.pt").symlink_to(elsewhere / "last-step.pt")
    (old / "laid-out-9").symlink_to(elsewhere)
    age(old)
    age(elsewhere)
    remove(later)
    assert sorted(elsewhere.rglob("*")) == before
    assert (above / "78").is_symlink()


def test_a_directory_above_that_is_a_link_is_left_alone(
    later: dict[str, str], tmp_path: Path
) -> None:
    old = beside(later, "77")
    (tmp_path / "link").symlink_to(old.parent)
    remove({**later, "MALLEABLE_DIR": str(tmp_path / "link" / "500")})
    assert old.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="acting as two users needs root")
def test_the_directory_of_another_user_is_kept(later: dict[str, str]) -> None:
    old = beside(later, "77")
    os.chown(old, 65534, -1)
    remove(later)
    assert (old / "last-step.pt").exists()


@pytest.mark.parametrize(
    "env",
    [{}, {"MALLEABLE_JOB_ID": ""}, {"MALLEABLE_JOB_ID": "9"}, {"MALLEABLE_DIR": "/nowhere/5"}],
)
def test_without_a_directory_named_after_the_job_no_file_is_removed(
    later: dict[str, str], env: dict[str, str]
) -> None:
    old = beside(later, "77")
    remove({**later, **env} if env else {})
    assert stat.S_ISDIR(old.stat().st_mode)
