"""A site's own objective: found where an administrator installed it, nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_hooks.allocation.objectives import JobFacts, efficiency
from slurm_hooks.errors import SettingsError
from slurm_hooks.model import Curve
from slurm_hooks.tick.entry_points import find_objective

OBJECTIVE = """
from slurm_hooks.objectives import JobFacts, Worth

def urgent_first(job: JobFacts) -> Worth:
    return Worth(5.0 if job.partition == "urgent" else 1.0, job.curve)

NUMBER = 3
"""


@pytest.fixture
def site(module_dir: Path) -> Path:
    """An installed package with three entry points, two of them bad."""
    (module_dir / "site_rules.py").write_text(OBJECTIVE)
    (module_dir / "site_leaver.py").write_text("raise SystemExit(0)\n")
    info = module_dir / "site_rules-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: site-rules\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[slurm_malleable.objectives]\nurgent = site_rules:urgent_first\n"
        "number = site_rules:NUMBER\nleaver = site_leaver:rule\ngone = site_rules:gone\n"
        "speedup = site_rules:NUMBER\n"
    )
    return module_dir


def test_an_installed_entry_point(site: Path) -> None:
    job = JobFacts("1", Curve(((0, 0.0), (1, 1.0))), 1, 1, 4, partition="urgent")
    assert find_objective("urgent")(job).weight == 5.0


def test_our_objectives_cannot_be_replaced(site: Path) -> None:
    assert find_objective("efficiency") is efficiency
    assert callable(find_objective("speedup"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gone", "cannot load site_rules:gone"),
        ("number", "is not a function"),
        ("leaver", "SystemExit: 0"),
        ("x", "known: speedup"),
    ],
)
def test_bad_entry_points_are_settings_errors(site: Path, name: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        find_objective(name)
