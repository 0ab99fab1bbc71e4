"""What agents at rest ask of the file system that the job's shared directory is on.

So many agents of one training are in a round and nothing happens: `strace` counts the calls that
concern the directory. What a server of NFS sees are the opens (each asks it anew), names that
are made and removed, and writes; the rest is answered on the node.

    python benchmarks/directory_load.py [--agents 2 16 64] [--seconds 20]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from slurm_hooks.elastic.agent.actions import Enter, Form, Wait
from slurm_hooks.elastic.agent.membership import Membership
from slurm_hooks.elastic.agent.options import Options
from slurm_hooks.elastic.agent.session import Session
from slurm_hooks.elastic.batch.lease import Lease
from slurm_hooks.elastic.liveness.heartbeat import Heartbeat
from slurm_hooks.elastic.rendezvous.directory import SharedDirectory
from slurm_hooks.elastic.rendezvous.rounds import Limits
from slurm_hooks.elastic.rendezvous.state import Member, Stop
from slurm_hooks.elastic.signals import SignalListener

WARM_S = 15.0
MONITOR_S = 0.1  # torchrun asks its rendezvous so often
SERVER = ("open", "getdents", "write", "make or remove a name")
KINDS = {
    "openat": "open",
    "getdents64": "getdents",
    "pwrite64": "write",
    "write": "write",
    "linkat": SERVER[3],
    "unlink": SERVER[3],
    "unlinkat": SERVER[3],
    "rename": SERVER[3],
    "mkdir": SERVER[3],
    "mkdirat": SERVER[3],
}
LINE = re.compile(r"[0-9]+ +([0-9.]+) (\w+)\(")


def options(path: Path, agents: int) -> Options:
    return Options(
        directory=path,
        run="7",
        limits=Limits(agents, agents),
        host="127.0.0.1",
        notice_s=20,
        poll_s=0.2,
        beat_s=1.0,
        keep_alive_s=6.0,
        settle_s=1,
        leave_s=1,
        boundary_s=1,
        wait_s=60,
    )


def agent(path: Path, number: int, agents: int) -> Session:
    shared = SharedDirectory(path, "7")
    shared.open()
    signals = SignalListener()
    me = Member(f"{number:016x}", number, 0, "1.0", "127.0.0.1")
    heartbeat = Heartbeat(shared, me.token, 1.0, 6.0)
    membership = Membership(me, shared, heartbeat, signals)
    session = Session(options(path, agents), membership, Lease({}, 20.0), signals)
    session.next_action()  # on the list from now on
    return session


def at_rest(path: Path, agents: int, seconds: float) -> None:
    """A training of so many agents, all in this process, of which nothing is heard."""
    shared = SharedDirectory(path, "7")
    sessions = [agent(path, n, agents) for n in range(agents)]

    def monitor(session: Session) -> None:
        while not isinstance(action := session.next_action(), Enter):
            if isinstance(action, Form):
                session.form(action.queue, 1)
            elif isinstance(action, Wait):
                time.sleep(action.pause_s)
        while session.look() is Stop.NO:
            time.sleep(MONITOR_S)
        os._exit(1)

    threads = [threading.Thread(target=monitor, args=(s,), daemon=True) for s in sessions]
    for thread in threads:
        thread.start()
    time.sleep(WARM_S)
    print(time.time(), flush=True)
    time.sleep(seconds)
    members = len(shared.read().members)
    os._exit(0 if members == agents else 1)


def measure(agents: int, seconds: float) -> Counter[str]:
    with tempfile.TemporaryDirectory() as work:
        path, trace = Path(work) / "shared", Path(work) / "trace"
        words = ["--at-rest", str(path), "--agents", str(agents), "--seconds", str(seconds)]
        child = [sys.executable, __file__, *words]
        traced = ",".join([*KINDS, "read", "pread64", "fstat", "newfstatat", "close", "statx"])
        strace = ["strace", "-f", "-y", "-ttt", "-qq", "-o", str(trace), "-e", f"trace={traced}"]
        done = subprocess.run([*strace, *child], stdout=subprocess.PIPE, text=True, check=True)
        return count(trace.read_text().splitlines(), str(path), float(done.stdout), seconds)


def count(lines: list[str], path: str, start: float, seconds: float) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in lines:
        match = LINE.match(line)
        if match and path in line and start <= float(match[1]) < start + seconds:
            found[KINDS.get(match[2], "answered on the node")] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--at-rest", type=Path)
    told = parser.parse_args()
    if told.at_rest:
        at_rest(told.at_rest, told.agents[0], told.seconds)
    names = [*SERVER, "answered on the node"]
    print("calls per agent and second | " + " | ".join(names))
    for agents in told.agents:
        found = measure(agents, told.seconds)
        rates = [f"{found[name] / agents / told.seconds:.2f}" for name in names]
        print(f"{agents} agents | " + " | ".join(rates), flush=True)


if __name__ == "__main__":
    main()
