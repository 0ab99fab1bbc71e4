"""Fragments that do not leave, and their remains for programs that run as root."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from abuse.conftest import Row
from promises.bench import Bench, has
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.abuse,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
USER = "nobody"
KILL_WAIT_S, EPILOG_S, SLACK_S = 5.0, 11.0, 5.0
# $1 is its name, $2 is the job.
DEAF = """#!/bin/sh
trap '' TERM HUP INT
echo $$ >pid.$1.$2
while :; do sleep 1; done
"""
STUBBORN = """
trap '' TERM HUP INT
J=$SLURM_ARRAY_JOB_ID
(setsid ./deaf.sh setsid $J </dev/null >/dev/null 2>&1 &)
python3 -c "import os
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
os.execv('./deaf.sh', ['deaf.sh', 'double', '$J'])"
(env -i PATH=/usr/bin:/bin setsid ./deaf.sh bare $J </dev/null >/dev/null 2>&1 &)
while :; do sleep 1; done
"""
# It stops every running Epilog of this user and of this sandbox.
HUNTER = """
import glob, os, signal, sys
epilogs = set()
while True:
    with open(sys.argv[2], "w") as file:
        print(os.getpid(), len(epilogs), file=file)
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path).read()
            if sys.argv[1] in words and "epilog.sh" in words and "\\0work\\0" in words:
                os.kill(int(path.split("/")[2]), signal.SIGSTOP)
                epilogs.add(path)
        except OSError:
            pass
"""
CROWD = 400


def pid_in(bench: Bench, name: str, job: int) -> int:
    path = bench.box.work / f"pid.{name}.{job}"
    return int(wait_until(lambda: path.exists() and path.read_text().split())[0])


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def urgent(bench: Bench, limit_s: float = 60) -> float:
    """Seconds from the submission to the start of an ordinary job over all nodes."""
    words = ["sbatch", "--parsable", "-p", "main", "-N4", "-o", "/dev/null", "--wrap", "sleep 1"]
    began = time.monotonic()
    job = bench.box.run(words).stdout.strip()
    state = ["squeue", "-h", "-j", job, "-tall", "-o", "%T"]
    wait_until(lambda: bench.box.run(state).stdout.strip() in ("RUNNING", "COMPLETED"), limit_s)
    return time.monotonic() - began


def drained(bench: Bench) -> list[str]:
    states = bench.box.run(["sinfo", "-h", "-N", "-o", "%T"]).stdout.split()
    return [state for state in states if "drain" in state or "down" in state]


def test_processes_that_ignore_every_signal_and_fork_away(bench: Bench, row: Row) -> None:
    deaf = bench.box.work / "deaf.sh"
    deaf.write_text(DEAF)
    deaf.chmod(0o755)
    job = bench.submit(STUBBORN, "1-1")
    bench.tick_until(job, has(1))
    pids = {name: pid_in(bench, name, job) for name in ("setsid", "double", "bare")}
    try:
        took = urgent(bench)
        assert took <= KILL_WAIT_S + EPILOG_S + SLACK_S
        wait_until(lambda: not lives(pids["setsid"]) and not lives(pids["double"]), EPILOG_S)
        is_left = lives(pids["bare"])
    finally:
        for pid in pids.values():
            end(pid)
    assert not drained(bench)
    left = "one without our environment lives on (proctrack/linuxproc)" if is_left else "none left"
    row("SIGTERM ignored, setsid, double fork, env -i", f"nodes after {took:.1f} s; {left}")


def test_a_fragment_that_stopped_itself(bench: Bench, row: Row) -> None:
    job = bench.submit("kill -STOP $$", "1-1")
    bench.tick_until(job, has(1))
    time.sleep(1)
    took = urgent(bench)
    assert took <= KILL_WAIT_S + SLACK_S
    row("SIGSTOP to its own script", f"nodes after {took:.1f} s")


def test_hundreds_of_daemons_with_large_environments(bench: Bench, row: Row) -> None:
    """The Epilog checks each of them, within its time limit."""
    body = f"""
    export FILL=$(head -c 60000 /dev/zero | tr '\\0' x)
    for i in $(seq {CROWD}); do (setsid sleep 300 </dev/null >/dev/null 2>&1 &) done
    sleep 1; touch crowd.$SLURM_ARRAY_JOB_ID; exec sleep 600
    """
    job = bench.submit(body, "1-1")
    bench.tick_until(job, has(1))
    wait_until((bench.box.work / f"crowd.{job}").exists)
    marker = f"SLURM_ARRAY_JOB_ID={job}".encode()
    took = urgent(bench)
    left = list(daemons(marker, str(bench.box.dir).encode()))
    for pid in left:
        end(pid)
    assert took <= KILL_WAIT_S + EPILOG_S + SLACK_S
    assert not drained(bench)
    row(f"{CROWD} daemons of 60 kB environment each", f"nodes after {took:.1f} s, {len(left)} left")


def daemons(marker: bytes, place: bytes) -> Iterator[int]:
    """Processes with this entry in their environment that belong to this sandbox."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            environment = path.read_bytes()
            if marker in environment.split(b"\0") and place in environment:
                yield int(path.parent.name)


def test_an_epilog_that_the_user_stops(bench: Bench, row: Row) -> None:
    """It runs as the user, who may stop it. Root waits no longer than the limit."""
    hunter = bench.box.work / "hunter.py"
    hunter.write_text(HUNTER)
    place = f"{bench.box.dir}/"
    body = (
        f"(env -i setsid /usr/bin/python3 {hunter} {place} pid.hunter.$J </dev/null &) 2>&1\n"
        "exec sleep 600"
    )
    job = bench.submit(f"J=$SLURM_ARRAY_JOB_ID\n{body}", "1-1")
    bench.tick_until(job, has(1))
    pid = pid_in(bench, "hunter", job)
    try:
        took = urgent(bench)
        stopped = wait_until(lambda: counted(bench, job), 5)
    finally:
        end(pid)
    assert took <= KILL_WAIT_S + EPILOG_S + SLACK_S
    assert not drained(bench)
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if is_epilog(p, place)]
    assert not left
    row("SIGSTOP to each process of the Epilog", f"{stopped} stopped; nodes after {took:.1f} s")


def counted(bench: Bench, job: int) -> int:
    """The number of Epilog processes that the hunter has stopped."""
    words = (bench.box.work / f"pid.hunter.{job}").read_text().split()
    return int(words[1]) if len(words) == 2 else 0


def is_epilog(path: Path, place: str) -> bool:
    with suppress(OSError):
        words = path.read_text(errors="replace")
        return place in words and "epilog.sh\0work" in words
    return False


PLANTS = """
mkdir -p $MALLEABLE_DIR; cd $MALLEABLE_DIR
mkfifo state.7 secret rounds.jsonl; ln -s {victim} state.8; ln -s /dev/zero state.9
truncate -s 1T state.10; ln -s / beats; ln -s {victim} ../tasks; cd $OLDPWD
mkfifo wish; ln -sf {victim} jobs; touch planted.$SLURM_ARRAY_JOB_ID
exec sleep 600
"""


def test_root_ignores_the_content_of_the_shared_directory(bench: Bench, row: Row) -> None:
    """Operators' commands, a tick and the Epilog, while FIFOs, links and devices lie there."""
    victim = bench.box.dir / "victim"
    victim.write_text("root's own\n")
    victim.chmod(0o600)
    job = bench.submit(PLANTS.format(victim=victim), "1-1")
    bench.tick_until(job, has(1))
    wait_until((bench.box.work / f"planted.{job}").exists)
    slowest, before = 0.0, victim.stat()
    for words in (
        ("reconcile",), ("status",), ("explain", str(job)), ("doctor", "--job", str(job)),
        ("report",), ("metrics",), ("hold", str(job)), ("release", str(job)),
    ):  # fmt: skip
        began = time.monotonic()
        bench.malleable(*words)
        slowest = max(slowest, time.monotonic() - began)
    took = urgent(bench)
    after = victim.stat()
    assert (after.st_mode, after.st_uid, after.st_mtime, after.st_atime) == (
        before.st_mode, before.st_uid, before.st_mtime, before.st_atime
    )  # fmt: skip
    assert victim.read_text() == "root's own\n"
    assert took <= KILL_WAIT_S + SLACK_S
    assert slowest < 30
    summary = f"slowest command of root {slowest:.1f} s, nodes after {took:.1f} s, nothing touched"
    row("FIFOs, links, devices and 1 TiB in the job's directory", summary)


def test_output_into_a_link_to_a_file_of_root(bench: Bench, row: Row) -> None:
    """Slurm opens the file as the user."""
    victim, path = bench.box.dir / "of_root", bench.box.work / "out.link"
    victim.write_text("root's own\n")
    victim.chmod(0o600)
    path.symlink_to(victim)
    job = bench.submit("exec sleep 600", "1-1", options=[f"--output={path}"])
    bench.tick_until(job, lambda j: any(f.mark.stopped for f in j.fragments), 60)
    took = urgent(bench)
    assert victim.read_text() == "root's own\n"
    assert took <= KILL_WAIT_S + SLACK_S
    assert not drained(bench)
    row("--output is a link to a file of root", f"stopped as failing; nodes after {took:.1f} s")


@pytest.mark.parametrize("request_", ["1-1", ""], ids=["ours", "an-ordinary-job"])
def test_output_into_a_fifo_without_a_reader(
    fresh_sandbox: Callable[..., Sandbox], request_: str, row: Row
) -> None:
    """slurmstepd (22.05.8) opens it before any process of the job, and this wait has no end."""
    box = fresh_sandbox(nodes=4)
    bench, path = Bench(box), box.work / "out.fifo"
    os.mkfifo(path)
    path.chmod(0o666)
    if request_:
        job = bench.submit("exec sleep 600", request_, options=[f"--output={path}"])
        bench.tick_until(job, has(1))
    else:
        words = ["sbatch", "-p", "malleable", "-o", str(path), "--wrap", "sleep 600"]
        box.run(words, user=USER)
        time.sleep(3)
    tried = "--output is a FIFO without a reader"
    try:
        took = urgent(bench, 40)
    except AssertionError:
        row(tried, "its node is completing for longer than 40 s, none drained")
        assert not drained(bench)
        pytest.xfail("slurmstepd waits in open(), whoever's job it is")
    row(tried, f"nodes after {took:.1f} s")
