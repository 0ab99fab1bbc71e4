"""The command `malleable` in a job: it imports its modules from any job path, with any
PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest

from slurm_hooks.protocol import jobpath

SEEN = """\
import json, os, signal, sys
import slurm_hooks
print(json.dumps([sys.argv[1:], slurm_hooks.__file__, os.environ["PYTHONPATH"], signal.__file__]))
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job path whose `malleable` prints its environment."""
    source = tmp_path / "source"
    (source / "elastic").mkdir(parents=True)
    (source / "protocol").mkdir()
    (source / "__init__.py").write_text("")
    (source / "elastic" / "__init__.py").write_text("")
    (source / "elastic" / "__main__.py").write_text(SEEN)
    monkeypatch.setattr(jobpath, "__file__", str(source / "protocol/jobpath.py"))
    return jobpath.write_job_path(tmp_path / "share" / "jobpath")


def run(program: Path, work: Path, **env: str) -> subprocess.CompletedProcess[str]:
    work.mkdir(exist_ok=True)
    return subprocess.run(
        [str(program), "run", "--", "a b"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=work,
        env={"PATH": os.environ["PATH"], **env},
    )


def answer(done: subprocess.CompletedProcess[str]) -> tuple[list[str], str, str, str]:
    assert done.returncode == 0, done.stderr
    arguments, module, python_path, signal_module = json.loads(done.stdout)
    return arguments, module, python_path, signal_module


@pytest.mark.parametrize("before", [None, "", "/mine", "/mine:"])
def test_the_command_brings_its_modules(path: Path, tmp_path: Path, before: Optional[str]) -> None:
    home = os.path.realpath(path)
    env = {} if before is None else {"PYTHONPATH": before}
    arguments, module, python_path, _ = answer(
        run(path / "bin/malleable", tmp_path / "work", **env)
    )
    assert arguments == ["run", "--", "a b"]
    assert module == f"{home}/slurm_hooks/__init__.py"
    assert python_path == f"{home}:{before}" if before else home


def test_the_plugins_entry_is_not_doubled(path: Path, tmp_path: Path) -> None:
    home = os.path.realpath(path)
    for before in (home, f"{home}:/mine"):
        done = run(Path(home) / "bin/malleable", tmp_path / "work", PYTHONPATH=before)
        assert answer(done)[2] == before


def test_files_of_the_user_do_not_stand_in_for_modules(path: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name in ("signal.py", "runpy.py", "json.py"):
        (work / name).write_text("raise SystemExit('the wrong module')\n")
    (work / "slurm_hooks").mkdir()
    (work / "slurm_hooks" / "__init__.py").write_text("")
    assert not answer(run(path / "bin/malleable", work))[3].startswith(str(work))


def test_the_command_works_through_links_and_at_another_place(path: Path, tmp_path: Path) -> None:
    moved = tmp_path / "in a container"
    shutil.copytree(path, moved)
    link = tmp_path / "link"
    link.symlink_to(moved / "bin" / "malleable")
    for program in (link, moved / "bin" / "malleable"):
        assert answer(run(program, tmp_path / "work"))[1].startswith(f"{moved}/slurm_hooks/")


def test_without_python_the_command_says_how_to_get_it(path: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "readlink"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    done = run(path / "bin/malleable", tmp_path / "work", PATH=str(tools))
    assert done.returncode == 127
    assert done.stderr == (
        f"malleable: there is no python3 in PATH ({tools}); load or activate an environment with "
        "Python 3.9 or newer\n"
    )


def test_an_old_python_prints_the_remedy(path: Path) -> None:
    """The real old Python is Rocky 8's 3.6, in tests/packages."""
    pretend = "import sys; sys.version_info = (3, 6, 8); exec(open(sys.argv[1]).read())"
    argv = [sys.executable, "-c", pretend, str(path / "__main__.py")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"malleable: {sys.executable} is Python 3.6; load or activate an environment with Python "
        "3.9 or newer\n"
    )


def test_all_users_may_run_the_command_and_only_run_it(path: Path) -> None:
    files = [file for file in path.resolve().rglob("*") if file.is_file()]
    assert [file.name for file in files if file.stat().st_mode & 0o777 == 0o755] == ["malleable"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o755, 0o644}


def test_shellcheck(path: Path) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    done = subprocess.run(
        [shellcheck, str(path / "bin/malleable")], capture_output=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout.decode()
