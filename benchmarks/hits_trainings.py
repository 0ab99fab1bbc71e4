"""The trainings that `benchmarks/hits.py` disturbs: a table, one entry each.

Those of digits are the examples themselves: three lines that tell of their steps are added where
the table says. The libraries' are those of tests/frameworks, and need the library.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
OURS = HERE / "hits_train"
FRAMEWORKS = HERE.parent / "tests" / "frameworks"  # these tell of their steps by themselves
DIGITS = HERE.parent / "examples" / "digits"
STEP_S = 0.2  # of one process; N of them share it
LAST_IMPORT = "from torch.nn.parallel import DistributedDataParallel\n"
STEPS_PER_EPOCH = "(len(train_x) // GLOBAL_BATCH)"


@dataclass(frozen=True)
class Training:
    """`script` of `place`, in which lines are added behind the ones given in `told`.

    `warm` names what its warm workers are to import besides what they find at its head;
    `needs` is a library without which there is no such training; `python` runs it.
    """

    label: str
    script: str
    place: Path = OURS
    words: tuple[str, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)
    warm: str = ""
    needs: str = "torch"


STEPS = 1_000_000  # more than there will be
PACE = (f"--steps={STEPS}", f"--pace={STEP_S}")
TRAININGS = {
    "watched": Training(
        "digits, watched",
        "train_more.py",
        DIGITS,
        PACE,
        {
            LAST_IMPORT: "import steplog\n",
            "        began = time.monotonic()\n": "        steplog.take(done, mine)\n",
            "        checkpoint.reached(done)  # +\n": "        steplog.done(done)\n",
        },
        warm="sklearn.datasets,sklearn.model_selection",  # imported by train.py, which it imports
    ),
    "unchanged": Training(
        "digits, unchanged",
        "train.py",
        DIGITS,
        PACE,
        {
            LAST_IMPORT: "import steplog\n",
            "        mine = batch_of(step, len(train_x))[rank::world]\n": (
                f"        steplog.take(step + 1, mine, 1 + step // {STEPS_PER_EPOCH})\n"
            ),
            "        done = step + 1\n": "        steplog.done(done)\n",
        },
    ),
    "lightning": Training("Lightning", "train_lightning.py", FRAMEWORKS, needs="lightning"),
    "trainer": Training("HF Trainer", "train_trainer.py", FRAMEWORKS, needs="transformers"),
    "accelerate": Training("accelerate", "train_accelerate.py", FRAMEWORKS, needs="accelerate"),
    "fsdp2": Training("FSDP2, DCP every 10 steps", "train_fsdp.py", FRAMEWORKS),
}


def library_python() -> str:
    """The interpreter that has the libraries: $HITS_PYTHON, else this one."""
    return os.environ.get("HITS_PYTHON", sys.executable)


def lacks(training: Training) -> bool:
    """Whether its library is not there, or its script not written."""
    if not (training.place / training.script).exists():
        return True
    if library_python() == sys.executable:
        return importlib.util.find_spec(training.needs) is None
    asked = f"import importlib.util as u, sys; sys.exit(u.find_spec({training.needs!r}) is None)"
    return subprocess.run([library_python(), "-c", asked], timeout=60, check=False).returncode != 0


def lay_out(training: Training, work: Path) -> Path:
    """Copy what it needs into `work`, with the lines that tell; gives its batch script."""
    scripts = work / "scripts"
    shutil.copytree(training.place, scripts)
    shutil.copy(OURS / "steplog.py", scripts)
    path = scripts / training.script
    text = path.read_text()
    for line, added in training.told.items():
        if text.count(line) != 1:
            raise ValueError(f"{path.name} has not one line {line.strip()!r} to add one behind")
        text = text.replace(line, line + added)
    path.write_text(text)
    batch = work / "train.sh"
    batch.write_text(_batch(training, path, work))
    return batch


def _batch(training: Training, script: Path, work: Path) -> str:
    python = sys.executable if training.place == DIGITS else library_python()
    own = [*training.words, f"--work={work}"] if training.words else [str(work), str(STEPS)]
    words = [python, "-m", "torch.distributed.run", str(script), *own]
    lines = ["#!/bin/bash", "export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore"]
    lines += [f"export MALLEABLE_WARM={training.warm}"] if training.warm else []
    lines += [f"export HITS_LOG={shlex.quote(str(work))}", f"exec {shlex.join(words)}", ""]
    return "\n".join(lines)
