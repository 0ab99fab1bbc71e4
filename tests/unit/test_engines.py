"""Engines: job_submit and the plugin get their traits, and each has its folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import astuple
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic.engines.entry import world_maker
from slurm_hooks.elastic.engines.gang.engine import find_engine
from slurm_hooks.errors import SettingsError
from slurm_hooks.model.job import POOL
from slurm_hooks.protocol.engines import DEFAULT, ENGINES, LAUNCHERS
from slurm_hooks.settings.values import Settings, parse
from slurm_hooks.slurm.lua_policy import render_policy
from slurm_hooks.slurm.mark import format_mark, parse_mark

TREE = Path(__file__).resolve().parent.parent.parent


@pytest.mark.skipif(not all(map(shutil.which, ("make", "cc"))), reason="make and cc are needed")
def test_the_plugin_reads_the_traits_that_are_written(tmp_path: Path) -> None:
    argv = ["make", "-C", str(TREE / "plugins" / "spank"), f"BUILD_DIR={tmp_path}"]
    program = tmp_path / "traits_test"
    subprocess.run([*argv, str(program)], capture_output=True, timeout=180, check=True)
    for row in ENGINES.values():
        done = subprocess.run(
            [program, row.traits], capture_output=True, text=True, timeout=150, check=True
        )
        _, *flags = astuple(row)
        assert done.stdout.split() == ["1", *(str(int(flag)) for flag in flags)], row
    header = (TREE / "plugins" / "spank" / "request.h").read_text()
    assert f'#define REQUEST_ENGINE_DEFAULT "{DEFAULT}"' in header


def test_job_submit_offers_them_unless_the_site_says_otherwise() -> None:
    slurm: Any = SimpleNamespace(preempts_by_qos=False, version=(), max_array_size=1, appends=True)
    policy = render_policy(Settings(), slurm, {})
    (line,) = re.findall(r"engines = \{(.*)\},", policy)
    offered = dict(re.findall(r'\["(\w+)"\] = "([a-z+]+)"', line))
    assert offered == {name: row.traits for name, row in ENGINES.items()}
    (launchers,) = re.findall(r"launchers = \{(.*)\},", policy)
    assert re.findall(r'\["([\w.]+)"\] = true', launchers) == list(LAUNCHERS)
    request = (TREE / "plugins" / "lua" / "malleable_request.lua").read_text()
    named = re.findall(r'engine (?:=|~=) "(\w+)"', request)
    assert set(named) == {DEFAULT}


@pytest.mark.parametrize("engine", [*ENGINES, "unheard_of"])
def test_only_pools_have_marks_without_a_least_size(engine: str) -> None:
    """The plugin's own test is plugins/spank/request_test.c."""
    mark = f"malleable{{min=0,max=4,unit=1,engine={engine},frags=4,lease=600,hole=120}}"
    row = ENGINES.get(engine)
    if row is None or not row.is_pool:
        with pytest.raises(ValueError, match="0-4 are not a range"):
            parse_mark(mark)
        return
    read = parse_mark(mark)
    assert read is not None
    assert (read[0].request.min_nodes, read[0].request.way) == (0, POOL)
    assert format_mark(*read) == mark


@pytest.mark.parametrize("name", [row.name for row in ENGINES.values() if row.by_torchrun])
def test_the_folder_of_an_engine_under_torchrun_makes_its_world(name: str) -> None:
    worlds = "slurm_hooks.elastic.engines"
    assert world_maker(name) is import_module(f"{worlds}.{name}.world").make_world


@pytest.mark.parametrize(
    "name", ["", "odd", *(row.name for row in ENGINES.values() if not row.by_torchrun)]
)
def test_torchrun_in_a_job_of_another_engine_belongs_to_a_separate_script(name: str) -> None:
    assert world_maker(name) is world_maker(DEFAULT)


def test_each_gang_that_torchrun_does_not_start_has_its_object() -> None:
    gangs = [row.name for row in ENGINES.values() if row.is_gang and not row.by_torchrun]
    assert gangs == ["mpi", "tensorflow", "command"]
    for name in gangs:
        assert callable(find_engine(name).variables)


OWN = '[request]\nengines = ["torchrun", "horovod:gang+rounds", "dask:pool"]\n'


def test_a_site_s_own_engine_is_known_by_its_traits() -> None:
    settings = parse(OWN)
    slurm: Any = SimpleNamespace(preempts_by_qos=False, version=(), max_array_size=1, appends=True)
    policy = render_policy(settings, slurm, {})
    assert '["horovod"] = "gang+rounds"' in policy
    assert 'foreign = {["horovod"] = "gang+rounds", ["dask"] = "pool"}' in policy
    mark = "malleable{min=0,max=4,unit=1,engine=dask,traits=pool,frags=4,lease=600,hole=120}"
    read = parse_mark(mark)
    assert read is not None
    assert read[0].request.way is POOL
    assert format_mark(*read) == mark


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        (
            "horovod",
            "horovod is not an engine of this package: add its traits, horovod:gang+rounds",
        ),
        ("horovod:", "is not an engine of this package"),
        ("horovod:gang+daemon", "'gang+daemon' are not traits of an engine"),
        ("horovod:gang+gang", "are not traits of an engine"),
        ("horovod:rounds", "has the traits gang+rounds or pool"),
        ("horovod:gang+pool", "has the traits gang+rounds or pool"),
        ("horovod:gang+torchrun", "has the traits gang+rounds or pool"),
        ('horovod:gang+rounds", "horovod:pool', "horovod is already listed as gang+rounds"),
        ("horovod:gang", "has the traits gang+rounds or pool"),
        ("horovod:pool+rounds", "has the traits gang+rounds or pool"),
        ("mpi:gang", "mpi is an engine of this package"),
        ("Horovod:gang", "'Horovod' is not a name of an engine"),
    ],
)
def test_a_wrong_engine_in_the_settings_is_named(entry: str, fault: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(fault)):
        parse(f'[request]\nengines = ["{entry}"]\n')
