"""SIGTERM in a training process. Cases that need torch are in test_just_in_time.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

CLOSES_ALL = """
import os, signal, sys, time
from slurm_hooks.elastic.script.last_signal import LastSignal
last = LastSignal(lambda: print("kept", flush=True), lambda: None, lambda: None)
last.listen()
os.closerange(3, 256)
files = [open(f"{sys.argv[1]}/{number}", "w+b", buffering=0) for number in range(4)]
for file in files:
    file.write(b"own")
    file.seek(0)
last.listen()
time.sleep(0.5)
print([file.read() for file in files], flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(20)
"""


def test_a_script_that_closes_all_descriptors_keeps_its_own_files(tmp_path: Path) -> None:
    """The script's files get the numbers of our pipe, which is made again at the next step."""
    argv = [sys.executable, "-c", CLOSES_ALL, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "")
    assert done.stdout.splitlines() == [str([b"own"] * 4), "kept"]
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"own"] * 4


FORKS = """
import os, signal, time
from slurm_hooks.elastic.script.last_signal import LastSignal
last = LastSignal(lambda: print("kept", flush=True), lambda: None, lambda: None)
last.listen()
for _ in range(40):
    child = os.fork()
    if child == 0:
        time.sleep(5)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_child_that_is_ended_right_after_fork_does_not_end_its_parent() -> None:
    """Its SIGTERM would be in the common pipe before the child has left it."""
    argv = [sys.executable, "-c", FORKS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(-signal.SIGTERM)] * 40


CHAINS = """
import os, signal, time
from slurm_hooks.elastic.script.last_signal import LastSignal
signal.signal(signal.SIGTERM, lambda *_: print("oldest", flush=True))
last = LastSignal(lambda: print("kept", flush=True), lambda: None, lambda: None)
last.listen()
before = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda *words: (print("newest", flush=True), before(*words)))
last.listen()
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(2)
os._exit(0)
"""


def test_a_handler_that_calls_its_predecessor_reaches_the_oldest() -> None:
    argv = [sys.executable, "-c", CHAINS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["kept", "newest", "oldest"]
