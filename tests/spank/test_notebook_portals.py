"""Notebooks from portals: the app of Open OnDemand and the profile of JupyterHub.

Both are rendered as the portals do it, by Ruby and by execution, with stand-ins for their values.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from test_ondemand import RUBY, ruby

from programs import write_program

ETC = Path(__file__).resolve().parents[2] / "etc"
APP, HUB = ETC / "ondemand-notebook", ETC / "jupyterhub" / "jupyterhub_config.py"
ANSWER = {"bc_num_hours": "4", "worker_nodes": "12"}
OF_THE_PORTAL = "find_port() { echo 4711; }; create_passwd() { echo secret; }; host=node1\n"

needs_ruby = pytest.mark.skipif(
    shutil.which("ruby") is None, reason="renders the app with Ruby: apt-get install ruby"
)


def render(name: str, answer: dict[str, str], kind: str = "yaml") -> str:
    return ruby("-e", RUBY, str(APP / name), json.dumps(answer), kind)


@needs_ruby
def test_the_form_has_two_fields_and_all_is_used() -> None:
    form = json.loads(render("form.yml", {}))
    assert set(form["form"]) == set(form["attributes"]) == set(ANSWER)
    used = [(APP / name).read_text() for name in ("submit.yml.erb", "template/script.sh.erb")]
    assert all(field in "".join(used) for field in form["form"])
    assert json.loads(render("manifest.yml", {}))["role"] == "batch_connect"


@needs_ruby
def test_the_notebook_is_an_ordinary_job() -> None:
    said = json.loads(render("submit.yml.erb", ANSWER))
    assert said["script"]["wall_time"] == 4 * 3600
    assert "malleable" not in json.dumps(said).lower()
    odd = json.loads(render("submit.yml.erb", {**ANSWER, "bc_num_hours": "1\n  native: [x]"}))
    assert odd["script"] == {**said["script"], "wall_time": 3600}


@needs_ruby
@pytest.mark.parametrize(
    ("count", "workers"), [("12", "12"), ("12; touch /tmp/x", "12"), ("", "0")]
)
def test_the_programs_that_the_job_starts(tmp_path: Path, count: str, workers: str) -> None:
    """JupyterLab where the portal's proxy looks for it, with the token of the link."""
    text = 'printf "%s\\n" "$WORKER_NODES" "$JUPYTER_TOKEN" "$@"'
    write_program(tmp_path / "jupyter", text)
    before = OF_THE_PORTAL + render("template/before.sh.erb", {}, "text")
    (tmp_path / "script.sh").write_text(
        render("template/script.sh.erb", {"worker_nodes": count}, "text")
    )
    text = f"{before}\nexec bash '{tmp_path}/script.sh'"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    said = subprocess.check_output(["bash", "-euc", text], env=env, text=True, timeout=150)
    nodes, token, *words = said.splitlines()
    assert (nodes, token) == (workers, "secret")
    assert "--ServerApp.base_url=/node/node1/4711/" in words
    link = {"host": "node1", "port": "4711", "password": "secret"}
    assert '"/node/node1/4711/lab?token=secret"' in render("view.html.erb", link, "text")


@needs_ruby
@pytest.mark.parametrize("name", ["before.sh.erb", "script.sh.erb"])
def test_the_shell_s_input_is_well_formed(name: str) -> None:
    text = render(f"template/{name}", ANSWER, "text")
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_profile_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "batchspawner", ModuleType("batchspawner"))
    config = SimpleNamespace(JupyterHub=SimpleNamespace(), ProfilesSpawner=SimpleNamespace())
    known: dict[str, Any] = {"get_config": lambda: config}
    exec(compile(HUB.read_text(), str(HUB), "exec"), known)
    ((shown, key, spawner, options),) = config.ProfilesSpawner.profiles
    assert (key, spawner) == ("malleable", "batchspawner.SlurmSpawner")
    assert options["req_prologue"] == "export WORKER_NODES=16"
    assert not options["req_srun"]
    assert "workers" in shown
