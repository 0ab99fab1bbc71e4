"""`malleable map`, started twice at the same time, and with inputs of any bytes, without Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from programs import write_programs
from slurm_hooks.elastic.engines.pool.task_files import read_inputs

SLURM = {
    "sbatch": 'cat >/dev/null; sleep 1; echo once >>"{place}/submitted"; echo 17',
    "squeue": "echo RUNNING",
    "scancel": "true",
}


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    write_programs(tmp_path, SLURM)
    settings = tmp_path / "malleable.toml"
    settings.write_text(f'[tick]\nslurm_bin = "{tmp_path}"\n')
    python = [sys.executable, "-m", "slurm_hooks.cli", "map", "--max=2", "--detach"]
    return [*python, f"--settings={settings}", f"--dir={tmp_path / 'map'}"]


def start(words: list[str], place: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=place, env=env, stdin=pipe, stdout=pipe, stderr=pipe)


def test_only_the_first_of_two_maps_at_the_same_time_submits(
    words: list[str], tmp_path: Path
) -> None:
    both = [start([*words, "--", "true", ":::", "a", "b"], tmp_path) for _ in range(2)]
    said = {one.communicate(timeout=150)[0] for one in both}
    assert said == {f"17 {tmp_path / 'map'}\n".encode()}
    assert [one.returncode for one in both] == [0, 0]
    assert (tmp_path / "submitted").read_text() == "once\n"


def test_inputs_are_of_any_bytes(words: list[str], tmp_path: Path) -> None:
    one = start([*words, "--inputs=-", "--", "cat"], tmp_path)
    one.communicate(b"a\r\n\n\xff \xc3\xa4\n", timeout=150)
    assert one.returncode == 0
    assert list(map(os.fsencode, read_inputs(tmp_path / "map"))) == [b"a", b"\xff \xc3\xa4"]


def test_a_mistake_leaves_no_directory(words: list[str], tmp_path: Path) -> None:
    one = start(words, tmp_path)
    assert b"give the program behind --" in one.communicate(timeout=150)[1]
    assert one.returncode == 64
    assert not (tmp_path / "map").exists()


@pytest.mark.parametrize("there", ["inputs", "lock", "tasks/1.0.0.todo"])
def test_a_directory_with_other_files_is_unchanged(
    words: list[str], there: str, tmp_path: Path
) -> None:
    """For example, `--dir .` names such a directory."""
    precious = tmp_path / "map" / there
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    one = start([*words, "--", "true", ":::", "a"], tmp_path)
    assert b"is not empty and has no map" in one.communicate(timeout=150)[1]
    assert one.returncode == 64
    assert [path for path in (tmp_path / "map").rglob("*") if path.is_file()] == [precious]
    assert precious.read_text() == "precious"
    assert not (tmp_path / "submitted").exists()


def test_a_percent_sign_in_the_directory_is_no_pattern_of_slurm(
    words: list[str], tmp_path: Path
) -> None:
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\ncat >/dev/null; echo "$*" >"{tmp_path}/submitted"; echo 17\n')
    one = start([*words, f"--dir={tmp_path}/100%j", "--", "true", ":::", "a"], tmp_path)
    one.communicate(timeout=150)
    assert f"--output={tmp_path}/100%%j/worker-%a.log" in (tmp_path / "submitted").read_text()


def test_an_empty_directory_is_kept_after_a_mistake(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "map").mkdir()
    start(words, tmp_path).communicate(timeout=150)
    assert os.listdir(tmp_path / "map") == []


def test_half_a_map_is_made_whole(words: list[str], tmp_path: Path) -> None:
    """The state is as after a full disk, or SIGKILL."""
    half = tmp_path / "map"
    for path in (half / "tasks" / "1.0.0.todo", half / "map.json.draft"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    start([*words, "--", "true", ":::", "a", "b"], tmp_path).communicate(timeout=150)
    assert sorted(os.listdir(half / "tasks")) == ["1.0.0.todo", "2.0.0.todo"]
    assert (tmp_path / "submitted").read_text() == "once\n"
