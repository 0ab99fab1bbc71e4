"""A site for the command line: its Slurm is scripts that print captured output."""

from __future__ import annotations

from pathlib import Path

import pytest

from captured_slurm import CAPTURED, as_asked_today
from programs import write_program
from slurm_hooks.commands.console import err, out


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site whose Slurm answers with captured output and records its commands."""
    captured = CAPTURED / "22.05"
    (tmp_path / "bin").mkdir()
    for name, answer in (("squeue", "held.squeue.txt"), ("scontrol", "held.scontrol.txt")):
        path, answered = tmp_path / "bin" / name, captured / answer
        if name == "squeue":
            answered = tmp_path / answer
            answered.write_text(as_asked_today((captured / answer).read_text()))
        write_program(
            path,
            f"text=$(cat)\ncase $text in 'show nodes'*|'') cat {answered};;\n"
            f'*) echo "$text" >> {tmp_path}/told;; esac',
        )
    settings = tmp_path / "malleable.toml"
    settings.write_text(
        '[site]\noperators = ["root"]\n[mode]\nlevel = "on"\n'
        f'[tick]\nslurm_bin = "{tmp_path / "bin"}"\nlock = "{tmp_path / "tick.lock"}"\n'
        f'state_dir = "{tmp_path / "state"}"\n'
    )
    monkeypatch.setenv("MALLEABLE_SETTINGS", str(settings))
    for console in (out, err):
        monkeypatch.setattr(console, "_width", 200)
    return tmp_path
