"""The program that takes the place of ssh for an MPI."""

from __future__ import annotations

import subprocess
from pathlib import Path

from slurm_hooks.elastic.engines.gang import mpi
from slurm_hooks.elastic.engines.gang.world import GangWorld, Place


def test_files_of_the_user_do_not_stand_in_for_modules(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    world = GangWorld(1, 0, (Place("10.0.0.1", "a", 1, 2, 1),))
    program = tmp_path / "launch"
    program.write_text(mpi.Mpi().lay_out(world)[mpi.LAUNCHER])
    done = subprocess.run(
        ["/bin/sh", str(program), "-x", "b", "true"],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
        cwd=tmp_path,
        env={"MALLEABLE_AGENTS": "{}"},
    )
    assert (done.returncode, "b is not a node" in done.stderr) == (255, True), done.stderr
