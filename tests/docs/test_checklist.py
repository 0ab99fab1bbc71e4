"""The lines to paste of docs/users/checklist.md have the described effect."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "users" / "checklist.md").read_text(encoding="utf-8")
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGURG)


def pasted(first: str) -> str:
    """The block that begins with this line."""
    blocks = re.findall(r"(?:^    .*\n)+", PAGE, re.M)
    return next(text for text in map(textwrap.dedent, blocks) if text.startswith(first))


FORKS = """
import os, signal
{lines}
def save(): open("saved", "a").write("x")
signal.signal({number}, on_signal)
child = os.fork()
os.kill(os.getpid(), {number})
if child:
    os.wait()
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_a_handler_that_compares_the_process_id_saves_once(number: int, tmp_path: Path) -> None:
    lines = pasted("MAIN = ")
    for text, times in ((lines, 1), (lines.replace("os.getpid() == MAIN and ", ""), 2)):
        (tmp_path / "saved").unlink(missing_ok=True)
        script = FORKS.format(lines=text, number=int(number))
        subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
        assert (tmp_path / "saved").read_text() == "x" * times


def test_a_process_killed_during_a_save_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_text("old")
    script = f"""
import os, signal
class torch:
    @staticmethod
    def save(state, name):
        open(name, "w").write(state[:1])
        {{"kill": lambda: os.kill(os.getpid(), signal.SIGKILL), "": lambda: None}}[how]()
state, how = "new", os.environ["HOW"]
{pasted("torch.save")}
"""
    for how, left in (("kill", "old"), ("", "n")):
        env = {**os.environ, "HOW": how}
        done = subprocess.run(
            [sys.executable, "-c", script], check=False, cwd=tmp_path, env=env, timeout=60
        )
        assert bool(done.returncode) is bool(how)
        assert (tmp_path / "ckpt.pt").read_text() == left
