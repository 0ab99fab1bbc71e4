"""The notebook in a real JupyterLab: its computation grows into idle nodes and outlives a preemption."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.browser import Page, opened
from engines.pools import EXAMPLES, PROGRAMS, beside, preempt, tick_until
from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

NOTEBOOK = EXAMPLES / "notebook" / "growing.ipynb"
LAB = "jupyter lab --no-browser --allow-root --ServerApp.ip=127.0.0.1 --IdentityProvider.token="
RUN_ALL = "jupyterapp.commands.execute('notebook:run-all-cells'); 1"


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("jupyterlab")
    pytest.importorskip("distributed")
    bench = Bench(sandbox, notice_s=10)
    for file in (NOTEBOOK, *(EXAMPLES / "dask").iterdir()):
        shutil.copy(file, sandbox.work)
    yield bench
    bench.cancel_all()


@pytest.fixture
def page(bench: Bench, tmp_path: Path) -> Iterator[Page]:
    """The notebook, open and with a kernel."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*LAB.split(), f"--ServerApp.port={port}", "--LabApp.expose_app_in_browser=True"]
    env = {**bench.box.environment, "SCHEDULER_HOST": "127.0.0.1"}
    env |= {"PATH": f"{PROGRAMS}:{env.get('PATH', os.environ['PATH'])}", "HOME": str(tmp_path)}
    with beside(bench, *words, f"--ServerApp.root_dir={bench.box.work}", **env):
        address = f"http://127.0.0.1:{port}/lab/tree/{NOTEBOOK.name}"
        wait_until(lambda: answers(address), 60, every_s=0.5)
        with opened(address, tmp_path / "browser") as page:
            kernel = "document.body.innerText.includes('Python 3') && !!window.jupyterapp"
            wait_until(lambda: page.value(kernel), 60, every_s=1)
            wait_until(lambda: page.value("document.querySelectorAll('.jp-Cell').length") >= 4, 60)
            yield page


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def outputs(page: Page) -> str:
    return str(page.value("[...document.querySelectorAll('.jp-OutputArea-output')]"
                          ".map(e => e.innerText).join('\\n')") or "")


def sizes(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"(\d+) workers", text)]


@pytest.mark.slurm
@pytest.mark.engines
@pytest.mark.browser
def test_it_grows_and_outlives_a_preemption(bench: Bench, page: Page) -> None:
    page.value(RUN_ALL)
    tick_until(bench, lambda: 4 in sizes(outputs(page)), 90)
    preempt(bench, 4, 6)
    tick_until(bench, lambda: 0 in sizes(outputs(page))[3:], 40)
    tick_until(bench, lambda: "pi is about" in outputs(page), 120)
    assert "pi is about 3.1416" in outputs(page)
    if os.environ.get("PICTURE"):
        page.value("document.querySelectorAll('.jp-Cell')[3].scrollIntoView(); 1")
        page.picture(Path(os.environ["PICTURE"]))


def test_the_notebook_is_kept_without_outputs() -> None:
    kept = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in kept["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    for cell in code:
        compile("".join(line for line in cell["source"] if line[0] != "!"), NOTEBOOK.name, "exec")
