"""A failed test is run once more. If it passes then, it is named and does not fail the run."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SOMETIMES = """
from pathlib import Path

def test_sometimes():
    seen = Path({seen!r})
    is_first = not seen.exists()
    seen.touch()
    assert not is_first

def test_good():
    pass
"""
ORDERED = """
import pytest
from pathlib import Path

pytestmark = pytest.mark.in_order
done = []

both = pytest.mark.parametrize("kind", ["a", "b"])

@both
def test_first(kind):
    done.append(kind)

@both
def test_second(kind):
    assert kind in done
    seen = Path({seen!r} + kind)
    is_first = not seen.exists()
    seen.touch()
    assert kind == "a" or not is_first

@both
def test_third(kind):
    pass
"""
ABSENT = "import pytest\n\npytest.importorskip('no_such_library')\n"
DYING = """
import os
from pathlib import Path

def test_dying():
    seen = Path({seen!r} + "dying")
    is_first = not seen.exists()
    seen.touch()
    if is_first:
        os._exit(1)
"""
NEVER = "def test_never():\n    assert False\n"


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "again", *words, str(directory)]
    # the plugin is named by the environment too, since the second run is another process
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(TESTS), "PYTEST_PLUGINS": "again"}
    return subprocess.run(
        argv, cwd=directory, env=env, text=True, capture_output=True, timeout=120, check=False
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(SOMETIMES.format(seen=str(tmp_path / "seen")))
    return tmp_path


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_flaky_test_is_named_and_does_not_fail_the_run(directory: Path, workers: str) -> None:
    done = run(directory, "--again", "-n", workers)
    assert done.returncode == 0, done.stdout
    assert "FLAKY test_some.py::test_sometimes" in done.stdout
    assert "assert not True" in done.stdout  # its first failure can still be read
    assert "1 passed, 1 flaky" in done.stdout.splitlines()[-1]


def test_a_module_that_is_skipped_is_no_test(directory: Path) -> None:
    (directory / "test_absent.py").write_text(ABSENT)
    done = run(directory, "--again", "-n", "2")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped, 1 flaky" in done.stdout.splitlines()[-1]


def test_a_test_whose_worker_died_is_run_once_more(directory: Path) -> None:
    (directory / "test_dying.py").write_text(DYING.format(seen=str(directory / "seen")))
    done = run(directory, "--again", "-n", "2", "--dist", "loadfile")
    assert done.returncode == 0, done.stdout
    assert "FLAKY test_dying.py::test_dying" in done.stdout


def test_a_fault_fails_twice_and_the_run_with_it(directory: Path) -> None:
    (directory / "test_fault.py").write_text(NEVER)
    done = run(directory, "--again")
    assert done.returncode == 1
    assert "FAILED test_fault.py::test_never" in done.stdout
    assert "1 failed, 1 passed, 1 flaky" in done.stdout.splitlines()[-1]


def test_a_test_that_is_skipped_the_second_time_has_failed(directory: Path) -> None:
    file = directory / "test_some.py"
    text = file.read_text().replace("assert not is_first", "assert not is_first; pytest.skip()")
    file.write_text(f"import pytest\n{text}")
    assert run(directory, "--again").returncode == 1


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_test_in_an_order_runs_after_those_before_it(directory: Path, workers: str) -> None:
    """Those with its parameter. A test alone would fail again."""
    (directory / "pytest.ini").write_text("[pytest]\nmarkers = in_order: x\n")
    (directory / "test_some.py").write_text(ORDERED.format(seen=str(directory / "seen")))
    done = run(directory, "--again", "-n", workers, "--dist", "loadfile")
    assert done.returncode == 0, done.stdout
    assert "after 1 before it: test_some.py::test_second[b]" in done.stdout
    assert "FLAKY test_some.py::test_second[b]" in done.stdout


def test_nothing_is_repeated_unasked(directory: Path) -> None:
    done = run(directory)
    assert done.returncode == 1
    assert "once more" not in done.stdout


def test_many_failures_are_no_flakes(directory: Path) -> None:
    (directory / "test_many.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test(n):\n    assert False\n"
    )
    done = run(directory, "--again")
    assert done.returncode == 1
    assert "once more" not in done.stdout
