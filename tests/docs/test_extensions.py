"""The packages of the three guides for extensions do as their pages say."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from captured_slurm import recorded
from shown import PAGES, files_shown
from slurm_hooks import cli
from slurm_hooks.doctor.catalogue import site_checks
from slurm_hooks.doctor.facts import Facts, Host, SlurmSays
from slurm_hooks.elastic.engines.gang.world import GangWorld, Place
from slurm_hooks.model import Curve
from slurm_hooks.model.snapshot import file as files
from slurm_hooks.objectives import JobFacts
from slurm_hooks.slurm.gateway import observe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLACES = (Place("10.0.0.1", "n1", 7000, 1, 1), Place("10.0.0.2", "n2", 7001, 1, 1))
Output = pytest.CaptureFixture[str]
Install = Callable[[str], str]


@pytest.fixture
def install(module_dir: Path) -> Install:
    """Install the package of a page as pip does, and return the name of its module."""

    def lay_out(page: str) -> str:
        shown = files_shown(page)
        project = tomllib.loads(shown["pyproject.toml"])
        (module,) = project["tool"]["setuptools"]["py-modules"]
        name = project["project"]["name"]
        info = module_dir / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        groups = project["project"]["entry-points"].items()
        lines = [f"[{group}]\n{key} = {value}" for group, e in groups for key, value in e.items()]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
        (module_dir / f"{module}.py").write_text(shown[f"{module}.py"])
        return str(module)

    return lay_out


def test_objective_of_the_page_plans_from_a_file(
    install: Install, tmp_path: Path, capsys: Output
) -> None:
    rules = importlib.import_module(install("objective.md"))
    job = JobFacts("1", Curve(((0, 0.0), (1, 1.0))), 1, 1, 4)
    assert rules.urgent_first(job).weight == 1.0
    assert rules.urgent_first(replace(job, user="forecast")).weight == 5.0
    files.save(observe(recorded("running"), ["malleable"]), tmp_path / "seen.json")
    (tmp_path / "other.toml").write_text('[plan]\nobjective = "urgent"\n')
    words = ["plan", "--snapshot", str(tmp_path / "seen.json"), "--settings"]
    assert cli.main([*words, str(tmp_path / "other.toml")]) == 0
    (tmp_path / "bad.toml").write_text('[plan]\nobjective = "nosuch"\n')
    assert cli.main([*words, str(tmp_path / "bad.toml")]) == 78
    assert "known: speedup, throughput, efficiency, priority, urgent" in "".join(
        capsys.readouterr()
    )


def test_objective_of_the_page_changes_the_sizes_as_the_page_prints(
    install: Install, tmp_path: Path, capsys: Output
) -> None:
    install("objective.md")
    program = files_shown("objective.md")["two_jobs.py"]
    made = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    (tmp_path / "seen.json").write_bytes(made.stdout)
    page = (PAGES / "objective.md").read_text(encoding="utf-8")
    for objective in ("speedup", "urgent"):
        (printed,) = re.findall(rf"^\| `{objective}` \| `(job 1.+)`, `(job 2.+)` \|$", page, re.M)
        (tmp_path / "other.toml").write_text(f'[plan]\nobjective = "{objective}"\n')
        words = ["plan", "--snapshot", str(tmp_path / "seen.json"), "--settings"]
        assert cli.main([*words, str(tmp_path / "other.toml")]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("job ")] == list(printed)


def test_objective_page_lists_every_fact_of_a_job() -> None:
    page = (PAGES / "objective.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page.partition("| field |")[2].partition("\n\n")[0]))
    assert named == {*(fact.name for fact in fields(JobFacts)), "rate_per_node"}


def test_check_of_the_page_warns_and_is_listed(install: Install, capsys: Output) -> None:
    install("check.md")
    assert cli.main(["doctor", "--list"]) == 0
    assert "checks of this site\n  site-mail " in capsys.readouterr().out
    (check,) = (check for check in site_checks() if check.id == "site-mail")
    for program, seen in (("/bin/mail", []), ("", ["no MailProg"])):
        slurm = SlurmSays({"MailProg": program}, (), (), (), ())
        facts = Facts(Host("ctl", 0, "root"), slurm=slurm)
        assert [finding.seen for finding in check.look(facts)] == seen


@pytest.mark.parametrize(
    ("page", "name", "test"),
    [
        ("engines.md", "test_paramserver", "test_rank_0_serves"),
        ("check.md", "test_our_site", "test_a_site_without_mail_is_warned"),
    ],
)
def test_the_test_of_a_page_passes(
    install: Install, module_dir: Path, page: str, name: str, test: str
) -> None:
    install(page)
    (module_dir / f"{name}.py").write_text(files_shown(page)[f"{name}.py"])
    getattr(importlib.import_module(name), test)()


def test_the_engine_of_the_page_gives_each_member_its_role(install: Install) -> None:
    module = importlib.import_module(install("engines.md"))
    roles = [module.ParameterServer().variables(GangWorld(1, rank, PLACES)) for rank in (0, 1)]
    assert [variables["PS_ROLE"] for variables in roles] == ["server", "worker"]
    assert {variables["PS_ADDRESS"] for variables in roles} == {"10.0.0.1:7000"}
    assert {variables["PS_WORKERS"] for variables in roles} == {"1"}
