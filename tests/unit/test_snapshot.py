"""Snapshots as files: no value is lost on the way, and every kind of fault has a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from captured_slurm import SITUATIONS, recorded
from fake_slurm import FakeSlurm
from planning.clusters import clusters
from slurm_hooks import cli
from slurm_hooks.errors import UsageError
from slurm_hooks.model import Curve, Snapshot
from slurm_hooks.model.snapshot import file as files
from slurm_hooks.model.snapshot.codec import BadData, to_data
from slurm_hooks.slurm.gateway import observe

Output = pytest.CaptureFixture[str]


def look(situation: str = "running") -> Snapshot:
    """A tick's snapshot of a real Slurm, with a curve added."""
    seen = observe(recorded(situation), ["malleable"])
    curves = {job.job_id: Curve(((0, 0.0), (1, 2.5), (4, 9.0))) for job in seen.jobs}
    return replace(seen, curves=curves)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_answers_of_a_real_slurm_survive_the_file(situation: str, tmp_path: Path) -> None:
    seen = look(situation)
    files.save(seen, tmp_path / "seen.json")
    assert files.read(tmp_path / "seen.json") == seen


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_any_cluster_survives_the_file(slurm: FakeSlurm) -> None:
    seen = observe(slurm, ["malleable"])
    assert files.parse(json.loads(files.snapshot_text(seen))["snapshot"]) == seen


def test_a_stored_snapshot_gets_the_same_plan(tmp_path: Path, capsys: Output) -> None:
    seen = observe(FakeSlurm({"n1": "", "n2": ""}), ["malleable"])
    path = tmp_path / "seen.json"
    files.save(seen, path)
    assert cli.main(["plan", "--snapshot", str(path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert cli.main(["plan", "--snapshot", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    first["solve"].pop("seconds"), again["solve"].pop("seconds")
    assert first == again
    assert first["solve"]["status"] == "nothing to do"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_planning_needs_no_slurm(situation: str, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "seen.json"
    files.save(look(situation), path)
    assert cli.main(["plan", "--snapshot", str(path)]) == 0
    assert " s (" in capsys.readouterr().out.splitlines()[-1]


def held() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(files.snapshot_text(look("held")))
    return data


FAULTS = [
    (["now"], "yesterday", "now: expected a time with a zone"),
    (["now"], "2026-11-20T08:00:00", "now: the time 2026-11-20T08:00:00 has no zone"),
    (["now"], None, "now: expected a time with a zone"),
    (["nodes", 0, "state"], "idle", "nodes[0].state: expected one of free, shared"),
    (["nodes", 0, "cpus"], "4", "nodes[0].cpus: expected a whole number, found '4'"),
    (["nodes", 0, "cpus"], True, "nodes[0].cpus: expected a whole number"),
    (["nodes", 0, "colour"], "red", "nodes[0].colour: unknown key; known: name, state"),
    (["slurm", "kill_wait"], 10**400, "slurm.kill_wait: expected a number"),
    (["nodes"], {}, "nodes: expected a list"),
    (["nodes", 1], 7, "nodes[1]: expected an object, found 7"),
    (["jobs", 0, "request", "min_nodes"], 9, "jobs[0].request: sizes 9-6 are not a range"),
    (["jobs", 0, "request", "lease"], 1e300, "jobs[0].request.lease: too many seconds: 1e+300"),
    (
        ["jobs", 0, "fragments", 2, "id"],
        "34",
        "jobs[0].fragments[2].id: expected a fragment",
    ),
    (["curves", "x"], {}, "curves.x: expected a job id as key"),
    (["curves", "34", "points"], [[0, 0], [1]], "curves.34.points[1]: expected 2 items, found 1"),
    (["curves", "34", "points"], [[0, 0], [1, 10**400]], "curves.34.points[1][1]: expected a n"),
    (["curves", "34", "points"], [[1, 1]], "curves.34: a curve starts at (0, 0.0)"),
    (["curves"], [], "curves: expected an object"),
    (["slurm", "kill_wait"], float("nan"), "slurm.kill_wait: expected a number, found nan"),
    (["slurm"], {}, "slurm.version: missing"),
]


@pytest.mark.parametrize(("where", "what", "said"), FAULTS, ids=[f[2][:40] for f in FAULTS])
def test_a_fault_is_a_line_with_its_key(
    where: list[Any], what: object, said: str, tmp_path: Path, capsys: Output
) -> None:
    data = held()
    place = data["snapshot"]
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = what
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    assert cli.main(["plan", "--snapshot", str(path)]) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.replace("\n", " ").replace("  ", " ")
    assert str(path) in err.replace("\n", "")


BAD_FILES = [
    ("", "not valid JSON"),
    ("{", "not valid JSON"),
    ("[" * 100_000, "nested too deeply"),
    ("3", '"format" is not'),
    ("{}", '"format" is not'),
    (json.dumps({"format": files.FORMAT}), "expected an object, found None"),
]


@pytest.mark.parametrize(("text", "said"), BAD_FILES, ids=[said for _, said in BAD_FILES])
def test_a_file_that_is_no_snapshot(text: str, said: str, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert cli.main(["plan", "--snapshot", str(path)]) == 64
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_a_missing_file(tmp_path: Path, capsys: Output) -> None:
    assert cli.main(["plan", "--snapshot", str(tmp_path / "none.json")]) == 74
    assert "none.json" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("situation", SITUATIONS)
def test_nodes_that_the_file_lacks_stop_no_plan(situation: str, tmp_path: Path) -> None:
    data = json.loads(files.snapshot_text(look(situation)))
    data["snapshot"]["nodes"] = []
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(data))
    assert cli.main(["plan", "--snapshot", str(path), "--json"]) == 0


def test_unknown_lines_are_kept() -> None:
    seen = replace(look("held"), unknown=("squeue: not a job line: 'x'",))
    assert files.parse(to_data(seen)) == seen
    with pytest.raises(BadData, match="unknown"):
        files.parse({**to_data(seen), "unknown": 3})


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than"):
        files.read(Path("/dev/zero"))
