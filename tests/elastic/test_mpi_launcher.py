"""The program that takes the place of ssh for an MPI."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from slurm_hooks.elastic.engines.gang import mpi
from slurm_hooks.elastic.engines.gang.crew import Crew
from slurm_hooks.elastic.engines.gang.world import GangWorld, Place
from slurm_hooks.elastic.engines.order import Order
from waiting import wait_until


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


def test_a_program_is_executed_although_the_agent_starts_another_meanwhile(tmp_path: Path) -> None:
    """Until it is executed, that other has all files open that the agent had: "Text file busy"."""
    engine: Any = SimpleNamespace(variables=dict)
    env = {"MALLEABLE_ENGINE": "of_site"}
    crew = Crew(Order(("true",)), env, "127.0.0.1", lambda: b"secret", engine)
    others: list[int] = []
    is_laid_out = threading.Event()

    def start_others() -> None:
        while not is_laid_out.is_set():
            others.append(os.fork())
            if not others[-1]:
                time.sleep(1.0)
                os._exit(0)

    thread = threading.Thread(target=start_others)
    thread.start()
    try:
        wait_until(lambda: others)
        crew._lay_out(str(tmp_path / "laid-out-1"), {"launch": "#!/bin/sh\n" + "#" * 50_000_000})
        subprocess.run([tmp_path / "laid-out-1" / "launch"], check=True)
    finally:
        is_laid_out.set()
        thread.join()
        crew.close()
        for pid in others:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
