"""A user's possible effects on the cluster by a submission: on a real Slurm."""

from __future__ import annotations

import os
import pwd
import time
from pathlib import Path

import pytest

from abuse.conftest import Row
from abuse.means import Canaries, own_client, submit_by_own_client
from promises.bench import Bench, has
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
USER, OTHER = "nobody", "games"
UID = pwd.getpwnam(USER).pw_uid
MARK = "malleable{min=1,max=4,unit=1,engine=torchrun,frags=4,lease=999999999,hole=1}"
SLEEP = "exec sleep 600"
SLOW_S = 2.0
LONG = "1-2" + "," * 100_000


@pytest.fixture(scope="module")
def client(sandbox: Sandbox) -> Path:
    return own_client(sandbox)


@pytest.fixture
def script(bench: Bench) -> Path:
    path = bench.box.work / "own.sh"
    path.write_text(f"#!/bin/bash\n{SLEEP}\n")
    path.chmod(0o755)
    return path


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def ids(bench: Bench) -> set[int]:
    """The ids of all malleable jobs that Slurm knows."""
    return {job.job_id for job in bench.observe().jobs}


def test_no_part_of_a_user_s_environment_reaches_root(
    bench: Bench, client: Path, script: Path, row: Row
) -> None:
    canaries = Canaries(bench.box.work / f"canaries{time.monotonic_ns()}")
    ours = {"MALLEABLE_DIR": "/etc", "SPANK_MALLEABLE": "1-1", "SLURM_JOB_UID": "0"}
    pairs = [f"{name}={value}" for name, value in {**canaries.variables, **ours}.items()]
    body = "find / -maxdepth 0; /usr/bin/python3 -c ''; setsid sleep 100 & sleep 2; exit 0"
    job = bench.submit(body, "1-1", options=[f"--export=ALL,{','.join(pairs)}"])
    bench.tick_until(job, lambda j: any(f.state is FragmentState.DONE for f in j.fragments))
    words = ["partition=malleable", *(f"spank={p}" for p in pairs), *(f"env={p}" for p in pairs)]
    words += [f"spank=SPANK_{p}" for p in pairs]
    said = submit_by_own_client(bench.box, USER, script, words)
    wait_until(lambda: bench.box.run(["squeue", "-h", "-j", said, "-tR"]).stdout)
    time.sleep(1)
    bench.box.run(["scancel", said])
    bench.cancel_all()
    bench.tick()
    assert {"library", "find", "python", "start"} <= canaries.kinds(UID)
    assert not canaries.kinds(0)
    kinds = ", ".join(sorted(canaries.kinds(UID)))
    row(
        "LD_PRELOAD, PATH, PYTHONPATH, BASH_ENV, ENV, SPANK_*",
        f"as the user: {kinds}; as root: none",
    )


def test_the_plugin_does_not_reveal_root_s_files(bench: Bench, row: Row) -> None:
    closed = bench.box.dir / "closed"
    closed.mkdir(mode=0o700)
    (closed / "there").touch()
    seen = []
    for name in ("there", "absent"):
        out = bench.box.work / f"path.{name}"
        job = bench.submit(
            f"echo $PYTHONPATH >{out}.new; mv {out}.new {out}; {SLEEP}",
            "1-1",
            options=[f"--export=ALL,MALLEABLE_PYTHONPATH={closed / name}"],
        )
        bench.tick_until(job, has(1))
        seen.append(wait_until(lambda path=out: text_of(path)))  # type: ignore[misc]
        bench.cancel_all()
    assert seen[0] == seen[1]
    assert "closed" not in seen[0]
    row("MALLEABLE_PYTHONPATH below a directory of root", "the same answer whether it is there")


@pytest.mark.parametrize("way", ["env=SBATCH_", "spank="])
def test_a_request_of_any_length_does_not_delay_slurmctld(
    bench: Bench, client: Path, script: Path, way: str, row: Row
) -> None:
    began = time.monotonic()
    said = submit_by_own_client(bench.box, USER, script, [f"{way}MALLEABLE={LONG}"])
    took = time.monotonic() - began
    assert "own_client" in said
    assert took < SLOW_S
    row(
        f"{len(LONG)} bytes of request by a client of one's own ({way.partition('=')[0]})",
        f"refused, {took:.2f} s",
    )


def test_a_mark_in_a_user_s_own_admin_comment(
    bench: Bench, client: Path, script: Path, row: Row
) -> None:
    """No command of Slurm sends AdminComment with a submission, but a user's own client does."""
    words = [f"admin_comment={MARK}", "partition=malleable", "array=0-3", "priority=0"]
    said = submit_by_own_client(bench.box, USER, script, words)
    if said.isdigit():
        shown = bench.box.run(["scontrol", "-o", "show", "job", said]).stdout
        assert "malleable{" not in shown
        bench.tick()
        assert not [job for job in bench.observe().jobs if job.job_id == int(said)]
    row("AdminComment with a mark and a lease of 31 years", f"Slurm: {said}; no tick takes it")


def test_jobs_that_look_like_ours_are_left_alone(bench: Bench, row: Row) -> None:
    """They are in our partition, named and commented like fragments, without --malleable."""
    before_ids, ours = ids(bench), bench.submit(SLEEP, "1-2", user=OTHER)
    options = ["-p", "malleable", f"--job-name={MARK}", f"--comment={MARK}", "--array=0-1"]
    path = bench.box.work / "alike.sh"
    path.write_text(f"#!/bin/bash\n{SLEEP}\n")
    path.chmod(0o755)
    words = ["sbatch", "--parsable", "--hold", *options, str(path)]
    alike = bench.box.run(words, user=USER).stdout.strip()
    before = bench.box.run(["scontrol", "-o", "show", "job", alike]).stdout
    bench.tick_until(ours, has(2))
    assert ids(bench) == before_ids | {ours}
    after = bench.box.run(["scontrol", "-o", "show", "job", alike]).stdout
    bench.box.run(["scancel", alike])
    assert after == before
    row("an array with our names and comments in our partition", "untouched, ours had its nodes")


REFUSED = (
    ["--malleable=1-65536"], ["--malleable=1-99999999999999999999"], ["--malleable=1-1025"],
    ["--malleable=0-0"], ["--malleable=-1-2"], ["--malleable=2-1"], ["--malleable=1-2,unit=0"],
    ["--malleable=1-2,unit=65535"], ["--malleable=1-2,engine=../../sh"], ["--malleable=$(id)"],
    ["--malleable=1-2,engine=%s%n"], ["--malleable=" + "9" * 100_000], ["--malleable=1-2\n3"],
    ["--malleable=1-2", "--array=0-999"], ["--malleable=1-2", "--licenses=x" * 3],
    ["--malleable=1-2", "--partition=main"], ["--malleable=1-2", "--comment=a\nb"],
    ["--malleable=1-2", ":", "--nodes=1"], ["--malleable=1-2", "--time=1"],
)  # fmt: skip


def test_impossible_requests(bench: Bench, script: Path, row: Row) -> None:
    slowest, before = 0.0, ids(bench)
    for options in REFUSED:
        began = time.monotonic()
        done = bench.box.run(["sbatch", *options, str(script)], user=USER, check=False)
        slowest = max(slowest, time.monotonic() - began)
        assert done.returncode != 0, options
        assert 0 < len(done.stderr) < 4096 + sum(map(len, options)), options  # sbatch quotes them
    assert slowest < SLOW_S
    assert ids(bench) == before
    row(f"{len(REFUSED)} impossible requests", f"all refused, {slowest:.2f} s at most")
