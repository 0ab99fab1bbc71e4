"""The tests' own machinery: shared sandboxes, distributed tests, the page of the night."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

import kept_sandbox as module
import sharing
import warm_commands
from kept_sandbox import KeptSandbox
from programs import write_programs
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.installation import Installation
from waiting import wait_until

TESTS = Path(__file__).resolve().parents[1]


def load(path: Path) -> Any:
    """A Python program that is no module."""
    loader = SourceFileLoader(path.name, str(path))
    program = module_from_spec(spec_from_loader(path.name, loader))  # type: ignore[arg-type]
    sys.modules[path.name] = program  # where dataclasses look for it
    loader.exec_module(program)
    return program


nightly = load(TESTS.parent / ".ci" / "nightly")


@pytest.mark.slurm
def test_a_test_that_leaves_a_job_behind_is_named_and_the_next_gets_a_new_sandbox(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    kept = KeptSandbox(nodes=1)
    try:
        box = kept.take()
        kept.check("a clean test")
        assert kept.take() is box
        box.run(["sbatch", "--hold", "-J", "left", "--wrap", "true"])
        with pytest.raises(AssertionError, match=r"a careless test left .*\n.*new job: .* left"):
            kept.check("a careless test")
        assert kept.take() is not box
        kept.check("the next test")
    finally:
        kept.down()


@pytest.mark.slurm
def test_a_sandbox_ends_with_a_worker_that_is_killed(installation: Installation) -> None:
    program = "import kept_sandbox, time; box = kept_sandbox.KeptSandbox(nodes=1).take()\n"
    argv = [sys.executable, "-c", f"{program}print(box.dir, flush=True)\ntime.sleep(600)"]
    env = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        box = Sandbox.attach(Path(worker.stdout.readline().strip()))
        worker.kill()
    wait_until(lambda: not (box.running() or box.dir.exists()), every_s=0.2)


def test_fixtures_for_a_module_have_the_spelling_that_the_sharing_expects() -> None:
    """Each module has its fixture in its own file, or in tests/conftest.py. These let a
    file be split.
    """
    odd = re.compile(r"scope *= *(?!\"(module|session)\")|scope *= +\"|scope +=")
    for path in TESTS.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        fixtures = re.findall(r"@pytest\.fixture\([^)]*\)", text)
        assert not [each for each in fixtures if odd.search(each)], path
        is_known = path.name.startswith("test_") or path.parent == TESTS
        assert is_known or not any(sharing.SHARED in each for each in fixtures), path


@pytest.mark.parametrize(
    ("printed", "code", "pattern"),
    [
        ("=== 3 passed, 1 skipped in 4.20s (0:00:04) ===", 0, "3 passed, 1 skipped"),
        ("no summary", 0, "passed"),
        (
            "FAILED a.py::b - why\n= 1 failed, 2 passed in 9s =",
            1,
            "exit code 1; .*; FAILED a.py::b",
        ),
        ("", 124, "exit code 124"),
    ],
)
def test_a_row_of_the_night_names_the_end_of_a_suite(
    tmp_path: Path, printed: str, code: int, pattern: str
) -> None:
    (tmp_path / "log").write_text(printed)
    assert re.fullmatch(pattern, nightly._result(tmp_path / "log", code))


def test_the_page_of_the_night_has_every_suite() -> None:
    assert nightly.PAGE.read_text() == nightly.page(nightly._rows())


def test_a_new_row_of_the_night_leaves_the_causes_below_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nightly, "PAGE", tmp_path / "nightly.md")
    causes = "\n## Causes\n| faults | munge |\n"
    nightly.PAGE.write_text(nightly.HEAD + "| faults | old |\n" + causes)
    rows = {**nightly._rows(), "faults": "| faults | new |"}
    nightly.PAGE.write_text(nightly.page(rows))
    assert nightly._rows() == rows
    assert nightly.PAGE.read_text().endswith(causes)


LEAKY = """
import socket, threading

def test_leaves_a_socket():
    ends = [socket.socket()]
    ends.append(ends)  # so that it goes only when garbage is collected
    thread = threading.Thread(target=ends.__len__)
    thread.start()
    thread.join()

def test_innocent():
    import gc
    gc.collect()
"""


def test_a_test_with_threads_that_leaves_a_socket_open_fails_itself(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_some.py").write_text(LEAKY)
    path = f"{TESTS}:{TESTS.parent}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-p", "no:xdist", str(tmp_path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=150,
        check=False,
    )
    (failed,) = (line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR")))
    assert "::test_leaves_a_socket" in failed, done.stdout


SQUEUE = """
(env | grep -v "^_=" | sort; pwd; umask; id; ps -o pgid=,sid= -p $PPID; ls /proc/$PPID/fd | wc -l
grep -E "^Sig(Blk|Ign|Cgt)" /proc/$PPID/status; readlink /proc/$PPID/fd/0) >{place}/seen
kill -$SIGNAL $PPID
exit 7
"""


@pytest.mark.parametrize(("number", "on_interrupt"), [(0, signal.SIG_DFL), (15, signal.SIG_IGN)])
def test_a_warm_command_is_like_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, on_interrupt: signal.Handlers
) -> None:
    write_programs(tmp_path, {"squeue": SQUEUE})
    settings = tmp_path / "malleable.toml"
    settings.write_text(f'[tick]\nslurm_bin = "{tmp_path}"\n')
    words = ["status", f"--settings={settings}"]
    env = {"PATH": os.environ["PATH"], "OWN": "ä", "SIGNAL": str(number), "TZ": "Asia/Tokyo"}
    env |= {k: v for k, v in os.environ.items() if k.startswith(warm_commands.AT_START)}
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o027)
    handler = signal.signal(signal.SIGINT, on_interrupt)  # workers of pytest ignore it at times
    try:
        answers: list[Any] = []
        for is_real in (False, True):
            if is_real:
                monkeypatch.setattr(warm_commands, "_at_start", id)  # differs from any other
            done = warm_commands.malleable(*words, env=env)
            seen = (tmp_path / "seen").read_text()
            answers.append((done.returncode, done.stdout, done.stderr, seen))
    finally:
        os.umask(before)
        signal.signal(signal.SIGINT, handler)
    assert answers[0][:3] == answers[1][:3]
    assert answers[0][3].splitlines() == answers[1][3].splitlines()
    assert "OWN=ä" in answers[0][3]
    assert answers[0][0] == -number or "exit code 7" in answers[0][2]
