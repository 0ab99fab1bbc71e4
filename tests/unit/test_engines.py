"""The tables of the engines, in C, Lua and twice in Python, say the same; each has its folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic.engines import table
from slurm_hooks.elastic.engines.entry import world_maker
from slurm_hooks.engines import DEFAULT, ENGINES
from slurm_hooks.settings import Settings
from slurm_hooks.slurm.lua_policy import render_policy

TREE = Path(__file__).resolve().parent.parent.parent
ROWS = [astuple(row) for row in ENGINES.values()]


def test_the_job_has_the_table_of_the_reconciler() -> None:
    assert {n: vars(row) for n, row in table.ENGINES.items()} == {
        n: vars(row) for n, row in ENGINES.items()
    }
    assert DEFAULT in ENGINES


@pytest.mark.skipif(not all(map(shutil.which, ("make", "cc"))), reason="make and cc are needed")
def test_the_plugin_has_it_too(tmp_path: Path) -> None:
    argv = ["make", "-C", str(TREE / "plugins" / "spank"), f"BUILD_DIR={tmp_path}"]
    program = tmp_path / "engines_test"
    subprocess.run([*argv, str(program)], capture_output=True, timeout=180, check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=30, check=True)
    words = [line.split() for line in done.stdout.splitlines()]
    assert [
        (name, *map(bool, map(int, flags))) for kind, name, *flags in words if kind == "engine"
    ] == ROWS
    assert ["default", DEFAULT] in words


def test_job_submit_offers_them_unless_the_site_says_otherwise() -> None:
    slurm: Any = SimpleNamespace(
        preemptible={}, slurm=SimpleNamespace(max_array_size=1, appends=True)
    )
    policy = render_policy(Settings(), slurm, {})
    (line,) = re.findall(r"engines = \{(.*)\},", policy)
    assert re.findall(r'\["(\w+)"\] = true', line) == list(ENGINES)
    request = (TREE / "plugins" / "lua" / "malleable_request.lua").read_text()
    named = re.findall(r'engine (?:=|~=) "(\w+)"', request)
    assert set(named) == {DEFAULT}


@pytest.mark.parametrize("name", [row.name for row in table.ENGINES.values() if row.by_torchrun])
def test_the_folder_of_an_engine_under_torchrun_makes_its_world(name: str) -> None:
    assert world_maker(name).__module__ == f"slurm_hooks.elastic.engines.{name}.world"
    assert world_maker("").__module__ == f"slurm_hooks.elastic.engines.{DEFAULT}.world"
