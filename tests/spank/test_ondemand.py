"""The form for Open OnDemand: its result for an answer, and that a real Slurm takes it.

Ruby renders it, as in the portal. The test submits it as the portal's adapter for Slurm does: the
variables in the environment of sbatch and their names in --export.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from spank_jobs import PRINT, SHELL_USER, printed, release, show, wait_for

FORM = Path(__file__).resolve().parents[2] / "etc" / "ondemand"
ANSWER = {"malleable_min": "1", "malleable_max": "3", "lease_hours": "2"}
RUBY = """
require "erb"; require "json"; require "ostruct"; require "yaml"
answer = OpenStruct.new(JSON.parse(ARGV[1]))
def answer.context = self
text = ERB.new(File.read(ARGV[0]), trim_mode: "-").result(answer.instance_eval { binding })
puts ARGV[2] == "yaml" ? JSON.generate(YAML.safe_load(text)) : text
"""

pytestmark = pytest.mark.skipif(
    shutil.which("ruby") is None, reason="renders the form with Ruby: apt-get install ruby"
)


def ruby(*arguments: str) -> str:
    argv = ["ruby", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(name: str, answer: dict[str, str], kind: str = "yaml") -> str:
    return ruby("-e", RUBY, str(FORM / name), json.dumps(answer), kind)


def test_the_form_asks_for_the_fields_of_the_submission() -> None:
    for name in ("form.yml", "manifest.yml"):
        assert json.loads(render(name, {}))
    form = json.loads(render("form.yml", {}))
    used = " ".join(
        (FORM / name).read_text() for name in ("submit.yml.erb", "template/script.sh.erb")
    )
    assert set(form["form"]) == set(form["attributes"])
    assert all(re.search(rf"\b{name}\b", used) for name in form["form"])


def test_the_submission() -> None:
    script = json.loads(render("submit.yml.erb", ANSWER))["script"]
    assert script["wall_time"] == 7200
    assert script["job_environment"] == {"SBATCH_MALLEABLE": "1-3"}


def test_only_numbers_are_accepted() -> None:
    answer = {**ANSWER, "malleable_max": '4"\n  native: ["--uid=0"]', "lease_hours": "x"}
    script = json.loads(render("submit.yml.erb", answer))["script"]
    assert script == {"wall_time": 0, "job_environment": {"SBATCH_MALLEABLE": "1-4"}}


def test_a_path_with_a_quote(tmp_path: Path) -> None:
    inner = tmp_path / "it's; $HOME.sh"
    inner.write_text("echo here: $PWD\n")
    text = render("template/script.sh.erb", {"batch_script": str(inner)}, "text")
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout == f"here: {tmp_path}\n"


@pytest.mark.slurm
@pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root")
def test_slurm_takes_the_form_s_submission(sandbox: Any) -> None:
    inner = Path(sandbox.work) / "ondemand_inner.sh"
    inner.write_text(PRINT + "print_env batch\necho END\n")
    script = json.loads(render("submit.yml.erb", ANSWER))["script"]
    text = render("template/script.sh.erb", {"batch_script": str(inner)}, "text")
    names = ",".join(script["job_environment"])
    limit = f"{script['wall_time'] // 3600:02d}:00:00"
    argv = ["sbatch", "--parsable", "-o", "ondemand.%a.out", "-t", limit, "--export", names]
    done = sandbox.run(argv, user=SHELL_USER, env=script["job_environment"], stdin=text)
    job = done.stdout.strip()
    assert show(sandbox, job)["ArrayTaskId"] == "0-2"
    release(sandbox, f"{job}_0")
    log = wait_for(Path(sandbox.work) / "ondemand.0.out", "\nEND\n")
    sandbox.run(["scancel", job])
    assert printed(log, "batch")["PET_NNODES"] == "1:3"
