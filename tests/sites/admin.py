"""What an administrator does to a sandbox, for the tests of how sites differ."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until


def set_site(bench: Bench, **keys: str) -> None:
    """Replaces keys of [site] in the settings; values as TOML writes them."""
    path = bench.box.settings
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.partition(" =")[0] not in keys]
    at = kept.index("[site]") + 1
    path.write_text("\n".join([*kept[:at], *(f"{k} = {v}" for k, v in keys.items()), *kept[at:]]))


def render(bench: Bench) -> subprocess.CompletedProcess[str]:
    """The policy anew, as after every change of settings or of Slurm; slurmctld reads it."""
    etc = bench.box.dir / "etc"
    done = bench.malleable("render", "lua", "-o", str(etc / "malleable_policy.lua"))
    stamp = (etc / "job_submit.lua").stat().st_mtime + 2  # slurmctld compares whole seconds
    os.utime(etc / "job_submit.lua", (stamp, stamp))
    return done


def submit(
    box: Sandbox, *words: str, user: str | None = "nobody", script: str = "exec sleep 600"
) -> subprocess.CompletedProcess[str]:
    """An sbatch that may be refused; `words` are its options."""
    who = user if os.geteuid() == 0 else None
    argv = ["sbatch", "--parsable", "-o", "/dev/null", *words]
    return box.run(argv, stdin=f"#!/bin/bash\n{script}\n", user=who, check=False)


def ordinary(box: Sandbox, *words: str, seconds: int = 3) -> str:
    """An ordinary job of root's in partition main; its id."""
    return submit(
        box, "-p", "main", *words, user=None, script=f"exec sleep {seconds}"
    ).stdout.strip()


def state_of(box: Sandbox, job: str) -> str:
    """The state of an ordinary job."""
    return box.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).stdout.strip()


def wait_for_state(box: Sandbox, job: str, states: Sequence[str], limit_s: float = 30) -> None:
    wait_until(lambda: state_of(box, job) in states, limit_s, lambda: state_of(box, job), 0.2)
