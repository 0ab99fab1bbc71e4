"""The wheel that a user installs: it needs nothing but Python, and torch finds its entry points."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from programs import write_programs

TREE = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={"PATH": os.environ["PATH"], **env},
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    built = run(
        sys.executable, str(TREE / "packaging" / "wheel.py"), str(place), PYTHONPATH=str(TREE)
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(built.stdout.strip()) as wheel:
        wheel.extractall(place / "site")
    return place / "site"


def test_it_needs_nothing_but_python(installed: Path) -> None:
    code = "from slurm_hooks.elastic.__main__ import main; raise SystemExit(main(['submit', '-h']))"
    said = run(sys.executable, "-S", "-c", code, PYTHONPATH=str(installed))
    assert said.stdout.startswith("usage: malleable submit "), said.stderr
    metadata = next(installed.glob("*.dist-info/METADATA")).read_text()
    assert "Requires-Dist" not in metadata


def test_torch_and_frameworks_find_it(installed: Path) -> None:
    text = next(installed.glob("*.dist-info/entry_points.txt")).read_text()
    for group in ("torchrun.handlers", "torch.backends", "lightning.pytorch.callbacks_factory"):
        assert f"[{group}]" in text
    assert "malleable = slurm_hooks.elastic.__main__:main" in text


LAY_OUT = """
import sys
from pathlib import Path
from slurm_hooks.protocol.jobpath import write_job_path
print(write_job_path(Path(sys.argv[1])).resolve().name)
"""


def test_it_lays_out_the_same_job_path(installed: Path, tmp_path: Path) -> None:
    paths = [
        run(sys.executable, "-S", "-c", LAY_OUT, str(tmp_path / str(n)), PYTHONPATH=str(root))
        for n, root in enumerate((installed, TREE))
    ]
    digests = [path.stdout.strip().rpartition("-")[2] for path in paths]
    assert digests[0] == digests[1] != "", paths[0].stderr


def command(installed: Path) -> Path:
    """The command `malleable` of the wheel."""
    code = "from slurm_hooks.elastic.__main__ import main\nraise SystemExit(main())\n"
    program = installed.parent / "bin" / "malleable"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{code}")
    program.chmod(0o755)
    return program


def test_jobs_of_both_kinds_are_shown_beside_an_installation(
    installed: Path, tmp_path: Path
) -> None:
    """As where a user has the wheel, and the site installs the software."""
    row = "7|0|RUNNING|None|1|2|n1|digits|/home/me/.malleable-1/submitted/plan-0ab/batch"
    write_programs(tmp_path, {"malleable": 'echo "installed: $*"', "squeue": f"echo '{row}'"})
    program = command(installed)
    env = {"PATH": f"{program.parent}:{tmp_path}:{os.environ['PATH']}"}
    env["PYTHONPATH"] = str(installed)
    said = run(str(program), "status", **env).stdout.splitlines()
    assert said[1].split()[:3] == ["7", "digits", "running"]
    assert said[-1] == "installed: status"
    assert run(str(program), "explain", "7", **env).stdout.startswith("job 7 (digits): running")
    assert run(str(program), "explain", "8", **env).stdout == "installed: explain 8\n"
    assert run(str(program), "status", "--all", **env).stdout == "installed: status --all\n"


def test_a_command_that_it_lacks_is_refused_and_not_looked_up_for_ever(installed: Path) -> None:
    program = command(installed)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = run(str(program), "reconcile", PATH=path, PYTHONPATH=str(installed))
    assert done.returncode == 127
    assert "`malleable reconcile` is not installed on this node" in done.stderr
