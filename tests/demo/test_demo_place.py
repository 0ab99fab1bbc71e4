"""The user and the Python of the demo's job, and the message where no Python will do."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import place, work

from programs import write_program
from slurm_hooks.errors import UsageError

MPI = work.WORKS["mpi"]


def test_a_missing_part_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINES_PYTHON", "/nowhere/python")
    with pytest.raises(UsageError, match="no_such_program"):
        place.submitter(replace(MPI, programs=("no_such_program",)))
    wanted = replace(MPI, programs=(), modules=("no_such_module",))
    with pytest.raises(UsageError, match=r"no_such_module.*ENGINES_PYTHON.*make test-engines"):
        place.submitter(wanted)
    with pytest.raises(UsageError, match="run `make demo`"):
        place.submitter(replace(wanted, engine="torchrun"))


def test_the_python_of_other_engines_is_taken_where_ours_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"'
    other = write_program(tmp_path / "python", text)
    (tmp_path / "only_there.py").touch()
    monkeypatch.setenv("ENGINES_PYTHON", str(other))
    alone = replace(MPI, programs=())
    assert place.submitter(replace(alone, modules=("only_there",))).python == other
    assert place.submitter(replace(alone, modules=("json",))).python == Path(sys.executable)


def test_the_run_of_the_night_plays_each_work() -> None:
    """So that each script of a work is run."""
    night = (Path(__file__).parents[2] / ".ci" / "nightly").read_text(encoding="utf-8")
    default, *others = work.WORKS
    options = [f"--engine {name}" for name in others] + ["--unit gpu", "--plain"]
    assert default == "torchrun"
    assert [option for option in options if f"make demo DEMO_ARGS='{option}'" not in night] == []
