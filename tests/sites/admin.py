"""An administrator's changes to a sandbox, for the tests of how sites differ."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from promises.bench import Bench
from slurm_hooks.sandbox import Sandbox
from waiting import PATIENCE_S, wait_until


def skip_without_database() -> None:
    for program in ("slurmdbd", "mariadbd"):
        if shutil.which(program, path="/usr/sbin:/usr/bin") is None:
            pytest.skip(f"{program} is not installed: make test-sites installs it")


def sacctmgr(box: Sandbox, *words: str) -> str:
    return box.run(["sacctmgr", "-i", "-nP", *words]).stdout


@contextmanager
def limited(box: Sandbox, kind: str, name: str, limit: str) -> Iterator[None]:
    """Set a limit such as GrpTRES=node=2 of an account, a user or a QOS, for a while."""
    sacctmgr(box, "modify", kind, name, "set", limit)
    try:
        yield
    finally:
        sacctmgr(box, "modify", kind, name, "set", f"{limit.rpartition('=')[0]}=-1")


def set_site(bench: Bench, **keys: str) -> None:
    """Replace keys of [site] in the settings. Values are written as in TOML."""
    path = bench.box.settings
    lines = path.read_text().splitlines()
    kept = [line for line in lines if line.partition(" =")[0] not in keys]
    at = kept.index("[site]") + 1
    path.write_text("\n".join([*kept[:at], *(f"{k} = {v}" for k, v in keys.items()), *kept[at:]]))


def render(bench: Bench) -> subprocess.CompletedProcess[str]:
    """Render the policy again, as after every change of settings or of Slurm. slurmctld
    reads it.
    """
    etc = bench.box.dir / "etc"
    done = bench.malleable("render", "lua", "-o", str(etc / "malleable_policy.lua"))
    stamp = (etc / "job_submit.lua").stat().st_mtime + 2  # slurmctld compares whole seconds
    os.utime(etc / "job_submit.lua", (stamp, stamp))
    return done


def submit(
    box: Sandbox, *words: str, user: str | None = "nobody", script: str = "exec sleep 600"
) -> subprocess.CompletedProcess[str]:
    """Call sbatch, which may refuse. `words` are its options."""
    who = user if os.geteuid() == 0 else None
    argv = ["sbatch", "--parsable", "-o", "/dev/null", *words]
    return box.run(argv, stdin=f"#!/bin/bash\n{script}\n", user=who, check=False)


def ordinary(box: Sandbox, *words: str, seconds: int = 3, user: str | None = None) -> str:
    """Submit an ordinary job to partition main, as root by default. Return its id."""
    said = submit(box, "-p", "main", *words, user=user, script=f"exec sleep {seconds}")
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def state_of(box: Sandbox, job: str) -> str:
    """The state of an ordinary job."""
    return box.run(["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]).stdout.strip()


def wait_for_state(
    box: Sandbox, job: str, states: Sequence[str], limit_s: float = PATIENCE_S
) -> None:
    wait_until(lambda: state_of(box, job) in states, limit_s, lambda: state_of(box, job), 0.2)
