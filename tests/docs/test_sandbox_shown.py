"""The pages' walks through a sandbox, typed line by line into a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from programs import write_program
from shown import files_shown
from slurm_hooks.sandbox import list_sandboxes
from slurm_hooks.sandbox.installation import Installation

pytestmark = pytest.mark.slurm
ROOT = Path(__file__).resolve().parents[2]
# `malleable` with the sandboxes of this test alone.
COMMAND = """
[ "$1" != sandbox ] || { shift; set -- sandbox --base "$BASE" "$@"; }
PYTHONPATH=$SOURCE${PYTHONPATH:+:$PYTHONPATH} exec "$PYTHON" -m slurm_hooks.cli "$@"
"""

# The job says how it ended, in the comment of an element.
UNTIL_FINISHED = """
for _ in $(seq 60); do
  said=$(scontrol show job 1 | grep Comment=) || true
  case $said in *finished{*) echo "$said"; break ;; esac
  sleep 1
done
"""


@pytest.fixture
def base(installation: Installation) -> Iterator[Path]:
    base = Path(f"/tmp/sbw-{os.getpid()}")
    yield base
    for box in list_sandboxes(base):
        box.down()
    shutil.rmtree(base, ignore_errors=True)


def typed(lines: list[str], place: Path, base: Path) -> str:
    """The words of a shell that runs these lines in a directory, and stops at the first fault."""
    bin_ = place / "bin"
    bin_.mkdir()
    write_program(bin_ / "malleable", COMMAND)
    more = {"BASE": str(base), "PYTHON": sys.executable, "SOURCE": str(ROOT)}
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "\n".join(lines)],
        cwd=place,
        env={**os.environ, **more, "PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def block(page: str, first: str) -> list[str]:
    """The lines of a block of code that has this text in it, without the page's margin."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .*\n)+|^```bash\n(?:.*\n)+?^```", text, re.M)
    (shown,) = (block for block in blocks if first in block)
    lines = [line.removeprefix("    ") for line in shown.splitlines()]
    return [line for line in lines if not line.startswith("```")]


def test_commands_of_the_readme(tmp_path: Path, base: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    activate, *lines = block("README.md", "malleable sandbox up")
    assert activate == ". .venv/bin/activate"
    said = typed([line.replace("JOBID", "1") for line in lines], tmp_path, base)
    assert "Submitted batch job 1" in said
    assert "grow 1_0 on n" in said
    assert not list_sandboxes(base)


def test_a_new_engine_is_tried(tmp_path: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/developers/engines.md"
    script = [line.replace("~/venv", sys.prefix) for line in block(page, "#SBATCH --malleable")]
    (tmp_path / "train.sh").write_text("\n".join([*script, ""]))
    for name, text in files_shown("engines.md").items():
        (tmp_path / name).write_text(text.replace("time.sleep(60)", "time.sleep(1)"))
    info = tmp_path / "our_paramserver-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-paramserver\nVersion: 1.0\n")
    entry = "[slurm_malleable.engines]\nparamserver = paramserver:ParameterServer\n"
    (info / "entry_points.txt").write_text(entry)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    *lines, last = block(page, "malleable sandbox up")
    assert last == "malleable reconcile --loop 10"
    said = typed([*lines, "malleable reconcile", UNTIL_FINISHED], tmp_path, base)
    assert "Submitted batch job 1" in said
    assert "grow 1_1 on n" in said
    assert "finished{" in said
