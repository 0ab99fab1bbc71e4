"""Hand a plan to sbatch: the first time, and again for elements that Slurm has cancelled to take
their nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from slurm_hooks.elastic.private_directory import DirectoryError, make_private, write_file
from slurm_hooks.elastic.selfservice import script
from slurm_hooks.elastic.selfservice.commands import ask
from slurm_hooks.elastic.selfservice.plan import Plan

SBATCH_S = 120.0
BATCH = "BATCH-SCRIPT"  # in the line of a plan: the script that sbatch gets


def batch(plan: Plan, own: script.Script, folder: Path) -> str:
    """Return the text of the batch script."""
    return script.batch_script(own, sys.executable, plan.job_path, str(folder / _plan_name(plan)))


def _plan_name(plan: Plan) -> str:
    return f"plan-{plan.root}.json" if plan.root else "plan.json"


def send(plan: Plan, own: script.Script, folder: Path) -> tuple[str, str]:
    """Submit the plan. Return the job's number, and why it failed, empty if it did not. Raises
    OSError, DirectoryError.
    """
    name = f"batch-{plan.root}" if plan.root else "batch"
    write(folder, {_plan_name(plan): plan.text, name: batch(plan, own, folder)})
    at = plan.line.index(BATCH)
    words = [*plan.line[:at], str(folder / name), *plan.line[at + 1 :]]
    said, why = ask("sbatch", "--parsable", *words, limit_s=SBATCH_S)
    return said.strip().partition(";")[0], why


def submit_again(plan: Plan, root: int, fragments: Sequence[int]) -> tuple[int, str]:
    """Submit these fragments again, as another array. Return its number, and why it failed."""
    which, at = f"--array={','.join(map(str, fragments))}", plan.line.index(BATCH)
    line = (*plan.line[:at], which, *plan.line[at:])  # sbatch takes the last one
    try:
        text = Path(plan.script).read_text("utf-8", "surrogateescape")
        folder = Path(plan.script).parent
        said, why = send(replace(plan, line=line, root=root), script.read(text), folder)
    except (OSError, DirectoryError, script.ScriptError) as error:
        return 0, str(error)
    return (int(said), "") if said.isdigit() else (0, why or f"sbatch said {said[:80]!r}")


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write files for this user alone. Raises OSError, DirectoryError."""
    make_private(folder)
    for name, text in files.items():
        data = text.encode("utf-8", "surrogateescape")
        write_file(folder, name, data, f"{name}.{os.getpid()}")
