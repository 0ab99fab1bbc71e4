"""venv, environment modules, login shells and the like, in a real Slurm: the Python of torchrun."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.engines]
MODULES = Path("/usr/share/modules/init/bash")
BIN = Path(sys.executable).parent
TRAIN = """
import torch.distributed as dist
dist.init_process_group("gloo")
print("trained on", dist.get_world_size())
dist.destroy_process_group()
"""
EXTENDS = "#%Module\nprepend-path PYTHONPATH {code}\nprepend-path PATH {bin}\n"
REPLACES = "#%Module\nsetenv PYTHONPATH {code}\nprepend-path PATH {bin}\n"
MISSING = "malleable-needs-torch-2.6-or-newer-and-the-PYTHONPATH-of-the-job"
# As `conda activate`, whose packages may set variables in activate.d.
CONDA = """mkdir -p env/activate.d
echo 'export PYTHONPATH=/of/the/package' > env/activate.d/package.sh
for each in env/activate.d/*.sh; do . $each; done
"""
FOUND = {
    "conda package that sets PYTHONPATH, and the job path again": (
        CONDA + "export PYTHONPATH=$MALLEABLE_PYTHONPATH:$PYTHONPATH\n{bin}/torchrun train.py"
    ),
    "venv": "source {bin}/activate\ntorchrun train.py",
    "module that extends PYTHONPATH": "{modules}\nmodule load extends\ntorchrun train.py",
    "module purge": "{modules}\nmodule load extends\nmodule purge\n{bin}/torchrun train.py",
    "venv on top of a module": (
        "{modules}\nmodule load extends\nsource {bin}/activate\ntorchrun train.py"
    ),
    "login shell": "exec bash -lc 'export PATH={bin}:$PATH; torchrun train.py'",
}
NOT_FOUND = {
    "conda package that sets PYTHONPATH": CONDA + "{bin}/torchrun train.py",
    "module that replaces PYTHONPATH": "{modules}\nmodule load replaces\ntorchrun train.py",
    "script that replaces PYTHONPATH": "export PYTHONPATH=$PWD\n{bin}/torchrun train.py",
    "python that ignores it": "{bin}/python -E -m torch.distributed.run train.py",
    "empty environment": "env -u PYTHONPATH {bin}/torchrun train.py",
}


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    bench = Bench(sandbox)
    (sandbox.work / "train.py").write_text(TRAIN)
    yield bench
    bench.cancel_all()


def submit(bench: Bench, lines: str) -> int:
    work = bench.box.work
    files = work / "modulefiles"
    files.mkdir(exist_ok=True)
    for name, text in (("extends", EXTENDS), ("replaces", REPLACES)):
        (files / name).write_text(text.format(code=work, bin=BIN))
    if "{modules}" in lines and not MODULES.exists():
        pytest.skip("environment-modules is not installed")
    if "activate" in lines and not (BIN / "activate").exists():
        pytest.skip("this Python is not that of a venv")
    modules = f"source {MODULES}\nmodule use {files}"
    return bench.submit(lines.format(bin=BIN, modules=modules), "1-1", TRAINER)


def log(bench: Bench, job: int) -> str:
    path = bench.box.work / f"slurm-{job}_0.out"
    return path.read_text(errors="replace") if path.exists() else ""


def is_installed() -> bool:
    """Tell whether this Python has the handler without the job's PYTHONPATH."""
    look = "from importlib.metadata import distribution; distribution('slurm-malleable')"
    argv = [sys.executable, "-E", "-c", look]
    return not subprocess.run(
        argv, cwd="/", capture_output=True, timeout=60, check=False
    ).returncode


@pytest.mark.parametrize("name", FOUND)
def test_the_handler_is_found(bench: Bench, name: str) -> None:
    job = submit(bench, FOUND[name])
    bench.tick()
    wait_until(lambda: "trained on 1" in log(bench, job), 60, lambda: log(bench, job))
    assert "round 1" in log(bench, job)


@pytest.mark.parametrize("name", NOT_FOUND)
def test_the_missing_package_is_named(bench: Bench, name: str) -> None:
    if is_installed():
        pytest.skip("the handler is installed in this Python, so PYTHONPATH does not matter")
    job = submit(bench, NOT_FOUND[name])
    bench.tick()
    wait_until(lambda: MISSING in log(bench, job), 60, lambda: log(bench, job))
    assert "trained on" not in log(bench, job)
