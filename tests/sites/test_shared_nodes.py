"""A machine whose jobs share nodes, and an administrator's changes to the partition for parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from promises.bench import Bench, has
from sites.admin import ordinary, state_of, submit, wait_for_state
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = pytest.mark.slurm
NewSite = Callable[..., Sandbox]
SLEEP = "exec sleep 600"


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Two nodes of 4 GPUs. Each node has its own type of GPU."""
    return new_site(nodes=2, cpus=8, gpus=4, gpu_types=("a100", "h100"), kill_wait_s=3)


@contextmanager
def updated(box: Sandbox, partition: str, word: str, before: str) -> Iterator[None]:
    """Change a word of a partition by scontrol."""
    update = ["scontrol", "update", f"PartitionName={partition}"]
    box.run([*update, word])
    try:
        yield
    finally:
        box.run([*update, before])


@contextmanager
def without_parts(box: Sandbox) -> Iterator[None]:
    """Remove the partition `parts` from slurm.conf, for a while."""
    conf = box.record.layout.conf
    text = conf.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("PartitionName=parts")]
    conf.write_text("\n".join(lines) + "\n")
    box.run(["scontrol", "reconfigure"])
    try:
        yield
    finally:
        conf.write_text(text)
        box.run(["scontrol", "reconfigure"])


def test_a_sandbox_with_gpus_passes_doctor(bench: Bench) -> None:
    assert bench.observe().no_parts == ()


def test_the_policy_of_a_sandbox_has_its_gpus(bench: Bench) -> None:
    def gpus_in(text: str) -> list[str]:
        return [line for line in text.splitlines() if "gpus =" in line]

    policy = bench.box.record.layout.conf.with_name("malleable_policy.lua").read_text()
    assert gpus_in(policy) == gpus_in(bench.malleable("render", "lua").stdout)
    assert '["gpu:h100"] = {4}' in gpus_in(policy)[0]
    with updated(bench.box, "malleable", "State=DOWN", "State=UP"):
        assert gpus_in(policy) == gpus_in(bench.malleable("render", "lua").stdout)


@pytest.mark.parametrize(
    ("partition", "word", "before", "line"),
    [
        ("main", "OverSubscribe=EXCLUSIVE", "OverSubscribe=NO", "its jobs take whole nodes"),
        (
            "main",
            "OverSubscribe=FORCE:4",
            "OverSubscribe=NO",
            "parts cannot share a node with its jobs",
        ),
        ("main", "PriorityTier=1", "PriorityTier=10", r"not below the tier of main (1)"),
        (
            "parts",
            "OverSubscribe=EXCLUSIVE",
            "OverSubscribe=NO",
            "cannot share a node with other jobs",
        ),
        ("parts", "PriorityTier=2", "PriorityTier=1", "not below the tier of malleable (2)"),
        ("parts", "PreemptMode=OFF", "PreemptMode=REQUEUE", "PreemptMode=OFF"),
        ("parts", "State=DOWN", "State=UP", "partition parts is DOWN"),
    ],
)
def test_a_tick_reports_the_change_of_an_administrator(
    bench: Bench, partition: str, word: str, before: str, line: str
) -> None:
    with updated(bench.box, partition, word, before):
        said = bench.malleable("reconcile").stdout
        assert "note: parts of nodes are not used: " in said
        assert line in said
    assert bench.observe().no_parts == ()


def test_a_gang_of_any_gpus_has_gpus_of_a_single_type(bench: Bench) -> None:
    job = bench.submit(SLEEP, "1-8,unit=gpu")
    bench.tick_until(job, has(1))
    seen = bench.observe()
    (fragment,) = bench.job(job).active
    (node,) = (node for node in seen.nodes if node.name in fragment.nodes)
    assert fragment.size == fragment.asks.gpus == node.used.gpus == 4


@pytest.mark.parametrize("sharing", ["NO", "EXCLUSIVE"])
def test_parts_leave_before_whole_nodes_for_any_request_of_whole_nodes(
    bench: Bench, sharing: str
) -> None:
    box = bench.box

    def start(*words: str) -> str:
        job = submit(box, *words, script=SLEEP, user="root").stdout.strip()
        wait_for_state(box, job, ["RUNNING"])
        return job

    with updated(box, "malleable", f"OverSubscribe={sharing}", "OverSubscribe=NO"):
        start("-p", "main", "--nodelist=n2", "--gres=gpu:2")
        whole = start("-p", "malleable", "--requeue", "--exclusive")
        part = start("-p", "parts", "--requeue", "--gres=gpu:2", "--mem=100")
        start("-p", "main", "--gres=gpu:2")
        assert [state_of(box, job) for job in (whole, part)] == ["RUNNING", "PENDING"]
        start("-p", "main", "--gres=gpu:4")
        assert state_of(box, whole) == "PENDING"
    for lane in ("malleable", "parts"):
        box.run(["scancel", f"--partition={lane}"])


def test_a_removed_partition_disturbs_no_neighbour(bench: Bench) -> None:
    """The job comes back with its partition, if Slurm allows it: 26.05 marks such jobs as not to be
    requeued.
    """
    box = bench.box
    neighbour = ordinary(box, "--nodelist=n1", "--gres=gpu:2", seconds=600)
    wait_until(lambda: state_of(box, neighbour) == "RUNNING")
    job = bench.submit(SLEEP, "1-2,unit=gpu,engine=pool")  # it takes GPUs of any type
    bench.tick_until(job, has(1))
    with without_parts(box):
        wait_until(lambda: "there is no partition parts" in bench.malleable("reconcile").stdout)
    if box.record.slurm.version < (26, 5):
        bench.tick_until(job, has(1))
    assert state_of(box, neighbour) == "RUNNING"
    box.run(["scancel", neighbour])
