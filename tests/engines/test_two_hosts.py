"""Agents with their own network namespaces, which share only their addresses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastic.gang import Gang
from slurm_hooks.protocol.jobpath import write_job_path
from waiting import wait_until

pytestmark = [pytest.mark.engines, pytest.mark.nightly]
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Two namespaces joined by a cable, each with an address of ADDRESSES."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    names = (f"mal{os.getpid()}a", f"mal{os.getpid()}b")
    try:
        for name in names:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "mal0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "mal0",
            "netns",
            names[1],
        )
        for name, address in zip(names, ADDRESSES):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "mal0")
            ip("-n", name, "link", "set", "mal0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are refused here: {error.stderr.decode()[-200:]}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class TwoHosts(Gang):
    """Fragment N runs on host N."""

    names: tuple[str, str]

    def start(
        self, fragment: int, nnodes: str, steps: int, *more: str, restarts: int = 0
    ) -> subprocess.Popen[bytes]:
        env = {
            **self.environment(fragment, nnodes, restarts),
            "PET_LOCAL_ADDR": ADDRESSES[fragment],
            "GLOO_SOCKET_IFNAME": "mal0",
        }
        host = ["ip", "netns", "exec", self.names[fragment]]
        command = [*host, sys.executable, *self.launcher, str(self.script)]
        with open(self.log_path(fragment), "ab") as log:
            self.agents[fragment] = subprocess.Popen(
                [*command, str(self.work), str(steps), *more],
                env=env,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.agents[fragment]


def test_fragments_meet_at_their_addresses(tmp_path: Path, hosts: tuple[str, str]) -> None:
    pytest.importorskip("torch")
    gang = TwoHosts(write_job_path(tmp_path / "jobpath"), tmp_path)
    gang.names = hosts

    def logs() -> str:
        return "\n".join(path.read_text() for path in tmp_path.glob("agent-*.log"))

    try:
        for fragment in (0, 1):
            gang.start(fragment, "1:2", 60)
        wait_until((tmp_path / "finished").exists, 90, logs)
        assert (tmp_path / "finished").read_text() == "2"
    finally:
        for agent in gang.agents.values():
            if agent.poll() is None:
                agent.terminate()
            agent.wait(30)
