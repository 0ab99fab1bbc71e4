"""Different hosts: submit hosts, a host without the plugin, and a configless node."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import Bench, has, occupied
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.processes import identify, stop
from waiting import wait_until

pytestmark = pytest.mark.slurm
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts, in a namespace of its own")
SHOW = 'echo "$MALLEABLE_MAX $MALLEABLE_ENGINE" >seen.$SLURMD_NODENAME; exec sleep 600'
# A configless slurmd needs this before it has a configuration: a munge at the usual place. The
# rest of /run is its own too, because it leaves a link to the fetched files there.
CONFIGLESS = (
    "mount -t tmpfs tmpfs /run && mkdir /run/munge /run/slurm && "
    "ln -s {socket} /run/munge/munge.socket.2 && exec {slurmd} -D --conf-server {server} -N {node}"
)


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    bench = Bench(sandbox)
    yield bench
    bench.cancel_all()


def second_host(box: Sandbox, name: str) -> Path:
    """The /etc/slurm of another submit host."""
    directory = box.dir / name
    if directory.exists():
        shutil.rmtree(directory)
    shutil.copytree(box.dir / "etc", directory)
    return directory


def sbatch(box: Sandbox, etc: Path, *words: str, script: str = SHOW) -> subprocess.CompletedProcess:
    return box.run(
        ["sbatch", "--parsable", "-o", "/dev/null", *words],
        stdin=f"#!/bin/bash\n{script}\n",
        env={"SLURM_CONF": str(etc / "slurm.conf")},
        check=False,
    )


# -- two submit hosts


def test_a_second_submit_host_with_its_own_plugstack(bench: Bench) -> None:
    etc = second_host(bench.box, "login2")
    line = (etc / "plugstack.conf").read_text()
    (etc / "plugstack.conf").write_text(line.replace("max_restarts=1000", "max_restarts=7"))
    said = sbatch(bench.box, etc, "--malleable=1-2")
    assert said.returncode == 0, said.stderr
    bench.tick_until(int(said.stdout), has(2))


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_submit_host_without_the_plugin_says_so(bench: Bench, is_inside: bool) -> None:
    etc = second_host(bench.box, "login3")
    (etc / "plugstack.conf").unlink()
    words = [] if is_inside else ["--malleable=1-2"]
    script = "#SBATCH --malleable=1-2\ntrue" if is_inside else "true"
    said = sbatch(bench.box, etc, *words, script=script)
    assert said.returncode != 0
    assert "unrecognized option '--malleable=1-2'" in said.stderr
    ordinary = sbatch(bench.box, etc, "-p", "main", script="true")
    assert (ordinary.returncode, ordinary.stderr) == (0, "")


# -- configless


@pytest.fixture
def configless(bench: Bench) -> Iterator[str]:
    """The node n4. Its slurmd has fetched its configuration, plugstack.conf too."""
    box = bench.box
    conf = box.dir / "etc" / "slurm.conf"
    before = conf.read_text()
    conf.write_text(before + "SlurmctldParameters=enable_configless\n")
    box.restart_controller()
    box.stop_node("n4")
    layout, slurm = box.record.layout, box.record.slurm
    server = f"127.0.0.1:{layout.controller_port}"
    argv = CONFIGLESS.format(
        socket=layout.munge_socket, slurmd=slurm.daemon("slurmd"), server=server, node="n4"
    )
    with (layout.logs / "configless.out").open("w") as out:
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", argv],
            env={"PATH": slurm.path},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        wait_until((layout.spool / "n4" / "conf-cache" / "plugstack.conf").exists)
        box.wait_ready(["n4"])
        yield "n4"
    finally:
        daemon = identify(process.pid)
        stop([daemon] if daemon else [], grace_s=5)
        process.wait(10)
        conf.write_text(before)
        box.restart_controller()
        box.start_node("n4")


@needs_root
def test_a_configless_node_has_the_plugin(bench: Bench, configless: str) -> None:
    others = ",".join(node for node in bench.box.nodes if node != configless)
    job = bench.submit(SHOW, "1-1", options=[f"--exclude={others}"])
    bench.tick_until(job, has(1))
    assert occupied(bench.job(job)) == {configless}
    seen = bench.box.work / f"seen.{configless}"
    wait_until(lambda: seen.exists() and seen.read_text().strip())
    assert seen.read_text().split() == ["1", "torchrun"]
    time.sleep(1)
    bench.tick()
    assert has(1)(bench.job(job))
