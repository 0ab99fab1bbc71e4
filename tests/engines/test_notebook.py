"""The notebook in a real JupyterLab: it grows into idle nodes and outlives a preemption."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from engines.browser import Page, opened
from engines.pools import EXAMPLES, PROGRAMS, command, preempt, tick_until
from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

NOTEBOOK = EXAMPLES / "notebook" / "growing.ipynb"
# A kernel that sees a test environment hides the output of its children.
LAB = f"/usr/bin/env -u PYTEST_CURRENT_TEST {PROGRAMS / 'jupyter'} lab --no-browser --allow-root"
OPTIONS = "--ServerApp.ip=127.0.0.1 --IdentityProvider.token= --LabApp.expose_app_in_browser=True"
RUN_ALL = "jupyterapp.commands.execute('notebook:run-all-cells'); 1"
BARE = (
    "jupyterapp.commands.execute('application:toggle-left-area')"
    ".then(() => document.querySelectorAll('.Toastify').forEach(e => e.remove()))"
)
SHUT_DOWN = "jupyterapp.serviceManager.kernels.shutdownAll()"


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("jupyterlab")
    pytest.importorskip("distributed")
    bench = Bench(sandbox, notice_s=10)
    for file in (NOTEBOOK, EXAMPLES / "dask" / "leave.py"):
        shutil.copy(file, sandbox.work)
    yield bench
    bench.cancel_all()


@pytest.fixture
def page(bench: Bench, tmp_path: Path) -> Iterator[Page]:
    """The open notebook with a kernel, in a job on a node."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*LAB.split(), *OPTIONS.split(), f"--ServerApp.port={port}"]
    words += [f"--ServerApp.root_dir={bench.box.work}"]
    path = bench.box.environment.get("PATH", os.environ["PATH"])
    env = {"PATH": f"{command(tmp_path / 'bin')}:{PROGRAMS}:{path}", "HOME": str(tmp_path)}
    env |= {"SCHEDULER_HOST": "127.0.0.1"}
    argv = ["sbatch", "--nodes=1", "--time=10", "--output=notebook.log"]
    bench.box.run([*argv, f"--wrap=exec {shlex.join(words)}"], env={**bench.box.environment, **env})
    address = f"http://127.0.0.1:{port}/lab/tree/{NOTEBOOK.name}"
    wait_until(lambda: answers(address), 60, every_s=0.5)
    with opened(address, tmp_path / "browser") as page:
        kernel = "document.body.innerText.includes('Python 3') && !!window.jupyterapp"
        wait_until(lambda: page.value(kernel), 60, every_s=1)
        wait_until(lambda: page.value("document.querySelectorAll('.jp-Cell').length") >= 4)
        yield page


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def outputs(page: Page) -> str:
    every = "[...document.querySelectorAll('.jp-OutputArea-output')]"
    return str(page.value(f"{every}.map(e => e.innerText).join('\\n')") or "")


def sizes(text: str) -> list[int]:
    """The numbers of workers that the notebook saw, without repetitions."""
    seen = [int(size) for size in re.findall(r"(\d+) workers", text)]
    return [size for size, _ in groupby(seen)]


def has_done(text: str, count: int) -> bool:
    return any(int(number) >= count for number in re.findall(r"(\d+) of 200", text))


@pytest.mark.nightly
@pytest.mark.slurm
@pytest.mark.engines
@pytest.mark.browser
def test_a_notebook_s_pool_grows_and_outlives_a_preemption(bench: Bench, page: Page) -> None:
    page.value(RUN_ALL)
    tick_until(bench, lambda: has_done(outputs(page), 40))
    preempt(bench, 2, 6)
    tick_until(bench, lambda: "pi is about" in outputs(page))
    text = outputs(page)
    assert "pi is about 3.1416" in text
    seen = sizes(text)
    assert 1 in seen[seen.index(3) :]
    assert seen[-1] == 3
    (job,) = {int(number) for number in re.findall(r"job (\d+): \d+ running", text)}
    if os.environ.get("PICTURE"):
        page.value(f"{BARE}.then(() => document.querySelectorAll('.jp-Cell')[2].scrollIntoView())")
        page.picture(Path(os.environ["PICTURE"]))
    page.value(SHUT_DOWN)
    wait_until(lambda: is_over(bench, job))


def is_over(bench: Bench, job: int) -> bool:
    """Tell whether Slurm has no running or waiting element of it."""
    return not bench.box.run(["squeue", "-h", "-j", str(job)], check=False).stdout.strip()


def test_the_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    for cell in code:
        compile("".join(cell["source"]), NOTEBOOK.name, "exec")
