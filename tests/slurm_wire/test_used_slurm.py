"""On a real Slurm: the reading of each node agrees with its jobs, in every state of a node."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from slurm_hooks.model import Node, NodeState, Snapshot
from slurm_hooks.model.unused import Unused, unused_of
from slurm_hooks.sandbox import Sandbox, SandboxSpec, daemons
from slurm_hooks.sandbox.config import render_conf
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.sandbox.spec import Layout
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.slurm.live import Live
from waiting import wait_until

pytestmark = pytest.mark.slurm
STUBBORN = "#!/bin/bash\ntrap '' TERM\necho deaf\nwhile :; do sleep 1; done\n"
TYPES = ("a100",)
JOBS = {  # by node; all have 8 GPUs, 16 CPUs and 16,000 MiB, and n1 is idle
    "n2": ("--gres=gpu:2", "--cpus-per-task=4", "--mem=4000"),
    "n3": ("--gres=gpu:a100:2", "--cpus-per-task=16", "--mem=4000"),
    "n4": ("--gres=gpu:8", "--cpus-per-task=8", "--mem=4000"),
    "n5": ("--gres=gpu:2", "--cpus-per-task=4", "--mem=4000"),  # completing
    "n6": ("--gres=gpu:2", "--cpus-per-task=4", "--mem=4000"),  # drained
    "n7": ("--gres=gpu:1", "--cpus-per-task=2", "--mem=16000"),
    "n8": ("--gres=gpu:1", "--exclusive"),
    "n9": ("--gres=gpu:1", "--cpus-per-task=13", "--mem=4000"),
}
FREE = {  # state; GPUs, CPUs, MiB that a job could get
    "n1": (NodeState.FREE, 8, 16, 16_000),
    "n2": (NodeState.SHARED, 6, 12, 12_000),
    "n3": (NodeState.BUSY, 0, 0, 0),
    "n4": (NodeState.SHARED, 0, 8, 12_000),
    "n5": (NodeState.BUSY, 0, 0, 0),
    "n6": (NodeState.LEAVING, 0, 0, 0),
    "n7": (NodeState.SHARED, 7, 14, 0),
    "n8": (NodeState.BUSY, 0, 0, 0),
    "n9": (NodeState.SHARED, 7, 3, 12_000),
}


SHARDS = {  # the GPUs left for a job that wants whole GPUs, after each job
    "--gres=shard:1": 3,
    "--gres=shard:4": 2,
    "--gres=gpu:1": 1,
}


def submit(box: Sandbox, node: str, *options: str) -> str:
    words = ["--parsable", "--partition=main", f"--nodelist={node}", f"--output={node}.out"]
    return box.run(["sbatch", *words, *options], stdin=STUBBORN).stdout.strip()


def look(box: Sandbox) -> Snapshot:
    return observe(Live(environment={**os.environ, **box.environment}), ("malleable",))


def free(node: Node) -> tuple[NodeState, int, int, int]:
    return node.state, node.free.gpus, node.free.cpus, node.free.memory_mib


def test_each_state_of_a_node_is_read(bare_sandbox: Callable[..., Sandbox]) -> None:
    size = {"nodes": 9, "cpus": 16, "memory_mib": 16_000, "gpus": 8, "gpu_types": TYPES}
    box = bare_sandbox(**size, kill_wait_s=60)
    jobs = {node: submit(box, node, *options) for node, options in JOBS.items()}
    running = ["squeue", "--noheader", "--states=running", "--format=%i"]
    wait_until(lambda: len(box.run(running).stdout.split()) == len(jobs))
    wait_until(lambda: box.run(["cat", "n5.out"], check=False).stdout)  # else SIGTERM ends it
    box.run(["scancel", jobs["n5"]])
    box.run(["scontrol", "update", "nodename=n6", "state=drain", "reason=test"])
    wait_until(lambda: {n.name: free(n) for n in look(box).nodes} == FREE)
    seen = look(box)
    assert {name: count for n in seen.nodes for name, count in n.total.gres} == {
        "gpu": 8,
        "gpu:a100": 8,
    }
    assert unused_of(seen, {"malleable"}) == {
        "gpu": Unused(idle=8, part=6 + 3, stranded=6 + 7 + 4),
        "cpu": Unused(idle=16, part=12 + 8 + 3, stranded=14),
    }


def with_shards(spec: SandboxSpec, slurm: Installation, layout: Layout) -> dict[str, str]:
    """Four GPUs, each of four shards."""
    files = render_conf(spec, slurm, layout)
    shared = {"GresTypes=gpu": "GresTypes=gpu,shard", "Gres=gpu:4": "Gres=gpu:4,shard:16"}
    for old, new in shared.items():
        files["slurm.conf"] = files["slurm.conf"].replace(old, new)
    gpus = f"Name=gpu File={layout.devices}/gpu[0-3] Cores=0-15\nName=shard Count=16\n"
    return {**files, "gres.conf": gpus}


def test_a_gpu_with_shards_is_not_free(
    bare_sandbox: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemons, "render_conf", with_shards)
    box = bare_sandbox(nodes=1, cpus=16, memory_mib=16_000, gpus=4)
    for used, (wanted, left) in enumerate(SHARDS.items(), start=1):
        submit(box, "n1", wanted, "--cpus-per-task=2", "--mem=100")
        wait_until(lambda cpus=2 * used: look(box).nodes[0].used.cpus == cpus)
        assert look(box).nodes[0].free.gpus == left
    submit(box, "n1", "--gres=gpu:2", "--cpus-per-task=2", "--mem=100", "--job-name=waits")
    waiting = ["squeue", "--noheader", "--name=waits", "--format=%T %r"]
    # The second on 23.11.4 without slurmdbd.
    waits = {"PENDING Resources", "PENDING InvalidAccount"}
    wait_until(lambda: box.run(waiting).stdout.strip() in waits)
