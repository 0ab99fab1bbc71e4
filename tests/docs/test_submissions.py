"""Every request on the users' pages is submitted to a real Slurm, whole scripts and lines alike."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest

from programs import write_program
from slurm_hooks.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "users").glob("*.md"))]
OPTION = "#SBATCH --malleable="
NAMES = ("train.sh", "worker.sh")  # of the scripts in the lines
# The pages show these as faults, with the message of sbatch.
REFUSED = {"sbatch --malleable=16 train.sh": "a number is not a range"}


def lines(text: str) -> set[str]:
    """Each call of sbatch with a request: in a line of code, a sentence or a comment."""
    code = re.findall(r"^    (sbatch .*--malleable=\d.*)", text, re.M)
    spans = re.findall(r"`((?:SBATCH_MALLEABLE=\d\S* )?sbatch [^`]*)`", text)
    words = re.findall(r"`(--malleable=\d\S*)`| #SBATCH (--malleable=\d\S*)", text)
    alone = [f"sbatch {''.join(groups)} train.sh" for groups in words]
    typed = (" ".join(shlex.split(line, comments=True)) for line in [*code, *spans, *alone])
    asking = {line for line in typed if re.search(r"(?i)(--|sbatch_)malleable=\d", line)}
    return {line if line.endswith(".sh") else f"{line} train.sh" for line in asking}


def scripts(text: str) -> set[str]:
    """Each block of code with options of sbatch."""
    blocks = re.findall(r"(?:^    .*\n)+", text, re.M)
    return {textwrap.dedent(block).strip() for block in blocks if "    #SBATCH " in block}


TEXTS = [page.read_text(encoding="utf-8") for page in PAGES]
LINES = sorted(set().union(*map(lines, TEXTS)))
SHOWN = set().union(*map(scripts, TEXTS))
SCRIPTS = sorted(script for script in SHOWN if OPTION in script)
RIGID = sorted(script for script in SHOWN if "#SBATCH --nodes=" in script)


@pytest.fixture(scope="module")
def site(new_site: Any) -> Any:
    """Nodes of 8 fake GPUs, and the partition that the pages name."""
    more = "PartitionName=gpu Nodes=ALL"
    return new_site(nodes=8, cpus=64, memory_mib=512_000, gpus=8, extra_conf=more)


def submit(site: Sandbox, line: str, script: str) -> tuple[int, str]:
    """Submit as a user and cancel what waits; the code and the words of sbatch."""
    for name in NAMES:
        write_program(site.work / name, script)
    done = site.run(["sh", "-c", f"cd {site.work} && {line}"], user="nobody", check=False)
    if match := re.search(r"batch job (\d+)", done.stdout):
        site.run(["scancel", match[1]])
    return done.returncode, done.stdout + done.stderr


def test_the_pages_show_requests() -> None:
    assert set(REFUSED) <= set(LINES)
    assert len(LINES) > 12
    assert len(SCRIPTS) > 3
    assert not set(SCRIPTS) & set(RIGID)  # two columns would be copied as a single script
    assert {"srun torchrun" in script for script in RIGID} == {True, False}


@pytest.mark.slurm
@pytest.mark.parametrize("line", LINES)
def test_the_line_is_accepted_or_refused_as_the_page_says(site: Sandbox, line: str) -> None:
    code, said = submit(site, line, "#!/bin/bash\ntorchrun train.py\n")
    if line in REFUSED:
        assert code != 0
        assert REFUSED[line] in said
    else:
        assert code == 0, said


@pytest.mark.slurm
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_is_accepted(site: Sandbox, script: str) -> None:
    code, said = submit(site, "sbatch train.sh", f"#!/bin/bash\n{script}\n")
    assert code == 0, said


@pytest.mark.slurm
@pytest.mark.parametrize("script", RIGID)
def test_a_rigid_script_works_as_well_if_it_has_torchrun(site: Sandbox, script: str) -> None:
    code, said = submit(site, "sbatch --malleable=2-16 train.sh", f"#!/bin/bash\n{script}\n")
    if "srun torchrun" in script:
        assert code == 0, said
        assert "are replaced by --malleable=2-16" in said
    else:
        assert code != 0
        assert "torchrun" in said
