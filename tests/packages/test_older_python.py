"""The installed packages on the oldest Python that they promise: Debian 11, in a separate root.

The first run makes that root (debootstrap, a minute or two). build/roots keeps it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from captured_slurm import recorded
from packages.conftest import Packages
from packages.root import TREE, Root, overlay
from slurm_hooks.model.snapshot.file import snapshot_text
from slurm_hooks.slurm.gateway import observe

pytestmark = [
    pytest.mark.package,
    pytest.mark.nightly,
    pytest.mark.timeout(1200),
    pytest.mark.parametrize("packages", ["deb"], indirect=True),  # the RPMs carry the same files
]
RELEASE, PYTHON = "bullseye", "3.9"
NEEDED = ("python3", "adduser", "systemd")
HOME = "/usr/lib/slurm-malleable"
JOB_PATH = "/usr/share/slurm-malleable/jobpath"
# Packages that the tests of a job side need, without compiled code. The last releases for 3.9 are
# not every mirror tells pip which Python a release needs.
TOOLS = ("pytest==8.4.2", "pytest-mock==3.15.1", "pytest-timeout==2.4.0", "iniconfig==2.1.0")
TOOLS += ("hypothesis==6.141.1", "exceptiongroup==1.3.1", "typing_extensions")
TOOLS += ("pytest-xdist==3.8.0", "execnet==2.1.1")  # most of the tests wait
IMPORT_ALL = """
import importlib, pkgutil, sys
import slurm_hooks.elastic as job_side
failed = {}
names = [m.name for m in pkgutil.walk_packages(job_side.__path__, job_side.__name__ + ".")]
for name in names:
    try:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        failed[name] = error.name
print(len(names), sys.version_info[:2], sorted(set(failed.values())))
"""


@pytest.fixture(scope="module")
def debian_11(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Root]:
    """A Debian 11 with the debs installed."""
    argv = [str(TREE / "packaging" / "matrix.sh"), "--make", RELEASE, *NEEDED]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=1000, check=False)
    if made.returncode != 0:
        pytest.skip(f"no Debian 11 here: {made.stderr.strip()}")
    with overlay(tmp_path_factory.mktemp(RELEASE), TREE / "build" / "roots" / RELEASE) as root:
        for part in ("", "-client", "-sandbox"):  # the tests use the last release
            (path,) = packages.old.glob(f"slurm-malleable{part}_*.deb")
            root.put(path, "/tmp/debs")
        root.run(["sh", "-c", "dpkg -i /tmp/debs/*.deb"])
        yield root


def test_the_command_starts_and_plans(debian_11: Root) -> None:
    assert debian_11.run(["python3", "-V"]).stdout.startswith(f"Python {PYTHON}.")
    assert debian_11.run(["malleable", "--version"]).stdout.startswith("malleable ")
    assert "usage: malleable" in debian_11.run(["malleable", "--help"]).stdout
    seen = observe(recorded("running"), ["malleable"])
    debian_11.write("/tmp/seen.json", snapshot_text(seen))
    asked = ["malleable", "plan", "--snapshot", "/tmp/seen.json", "--json"]
    plan = json.loads(debian_11.run(asked).stdout)
    assert plan["solve"]["status"] in ("optimal", "nothing to do", "feasible")


def test_everything_that_a_job_imports_is_there_without_torch(debian_11: Root) -> None:
    env = {"PYTHONPATH": JOB_PATH, "PYTHONDONTWRITEBYTECODE": "1"}
    said = debian_11.run(["python3", "-c", IMPORT_ALL], env=env).stdout
    count, rest = said.split(" ", 1)
    assert int(count) > 50
    assert rest == "(3, 9) ['torch']\n"


@pytest.mark.skipif("PACKAGES_DEMO" not in os.environ, reason="minutes: PACKAGES_DEMO=1")
def test_the_tests_of_a_jobs_side_pass_without_torch(debian_11: Root, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools)]
    fetch += [f"--python-version={PYTHON}", "--only-binary=:all:", *TOOLS]
    if subprocess.run(fetch, capture_output=True, timeout=300, check=False).returncode != 0:
        pytest.skip("pip finds no pytest for that Python here")
    # Some tests run what the documents and the examples show.
    shown = (TREE / "docs", TREE / "examples")
    for source in (tools, TREE / "tests", TREE / "pyproject.toml", *shown):
        debian_11.put(source, "/tmp/tests")
    path = f"{HOME}:{HOME}/vendor:/tmp/tests/tools:/tmp/tests/tests"
    argv = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=/tmp/tests"]
    argv += ["-m", "not slurm and not torch and not slow", "/tmp/tests/tests/elastic"]
    argv += ["-n", "4", "--dist", "loadscope"]
    env = {"PYTHONPATH": path, "PYTHONPYCACHEPREFIX": "/tmp/bytecode"}  # programs start often
    done = debian_11.run(argv, env=env, check=False, timeout_s=700)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
