"""Scripts of rigid jobs, unchanged: they meet in the rendezvous of the job."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from slurm_hooks.elastic.engines.torchrun import takeover as module
from slurm_hooks.elastic.engines.torchrun.flags import overrides
from slurm_hooks.elastic.engines.torchrun.register import program_of
from slurm_hooks.elastic.engines.torchrun.takeover import Requested, adopted, take_over
from slurm_hooks.protocol.engines import BACKENDS

from .gang import Gang

ENV = {
    "PET_NNODES": "2:16",
    "PET_RDZV_ENDPOINT": "/home/ada/.malleable/42",
    "PET_LOCAL_ADDR": "10.0.0.7",
    "MALLEABLE_JOB_ID": "42",
    "MALLEABLE_MIN": "4",
    "MALLEABLE_MAX": "32",
    "MALLEABLE_UNIT": "2",
}
OURS = Requested(BACKENDS[1], ENV["PET_RDZV_ENDPOINT"], "42", 2, 16, "10.0.0.7")


def test_options_that_the_job_itself_asks_for_are_left_alone() -> None:
    assert adopted(OURS, ENV) == module.Instead(OURS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Requested("c10d", "head:29500", "123", 2, 16), "instead of c10d at head:29500"),
        (
            Requested("static", "127.0.0.1:29500", "none", 2, 16),
            "instead of static at 127.0.0.1:29500",
        ),
        (Requested("c10d", "localhost:0", "uuid", 2, 16), "instead of c10d at localhost:0"),
        (Requested("etcd-v2", "", "", 2, 16), "instead of etcd-v2"),
        # accelerate names a backend itself, and torch adds the job's own endpoint.
        (Requested("static", ENV["PET_RDZV_ENDPOINT"], "42", 2, 16), "instead of static"),
    ],
)
def test_another_rendezvous_is_replaced_with_a_single_line(asked: Requested, words: str) -> None:
    rendezvous = adopted(asked, ENV)
    assert rendezvous.values == OURS
    (line,) = rendezvous.lines
    assert line.endswith(words)


def test_a_directory_that_the_user_has_chosen_is_kept() -> None:
    mine = replace(OURS, endpoint="/scratch/mine")
    assert adopted(mine, ENV).values.endpoint == "/scratch/mine"
    other = replace(OURS, endpoint="head:29500")
    assert adopted(other, ENV).values.endpoint == ENV["PET_RDZV_ENDPOINT"]
    env = {**ENV, "PET_RDZV_ENDPOINT": "head:29500", "MALLEABLE_DIR": "/shared/42"}
    assert adopted(other, env).values.endpoint == "/shared/42"


@pytest.mark.parametrize(
    ("asked", "used", "words"),
    [
        ((1, 1), (2, 16), "--nnodes=1 is ignored; the job's range is 2:16"),
        ((4, 4), (2, 16), "--nnodes=4 is ignored; the job's range is 2:16"),
        ((99, 99), (2, 16), "--nnodes=99 is ignored; the job's range is 2:16"),
        ((1, 4), (2, 4), "--nnodes=1:4 narrows the job's 2:16"),
        ((4, 8), (4, 8), "--nnodes=4:8 narrows the job's 2:16"),
        ((4, 99), (4, 16), "--nnodes=4:99 narrows the job's 2:16"),
        ((1, 99), (2, 16), ""),
        ((20, 30), (2, 16), "--nnodes=20:30 is ignored; the job's range is 2:16"),
    ],
)
def test_a_number_of_nodes_is_a_left_over_and_a_range_is_meant(
    asked: tuple[int, int], used: tuple[int, int], words: str
) -> None:
    rendezvous = adopted(replace(OURS, min_nodes=asked[0], max_nodes=asked[1]), ENV)
    assert (rendezvous.values.min_nodes, rendezvous.values.max_nodes) == used
    assert [words in line for line in rendezvous.lines] == ([True] if words else [])
    assert rendezvous.is_narrowed is (used[1] < 16)


@pytest.mark.parametrize(
    ("more", "used"),
    [
        ({}, (2, 16)),
        ({"SLURM_STEP_NUM_NODES": "2"}, (4, 32)),
        ({"MALLEABLE_ENGINE": "torchft"}, (1, 1)),
    ],
)
def test_a_replaced_variable_does_not_hide_the_job_s_values(
    more: dict[str, str], used: tuple[int, int]
) -> None:
    env = {**ENV, "PET_NNODES": "1", "MALLEABLE_KEPT": "PET_NNODES", **more}
    values = adopted(replace(OURS, min_nodes=1, max_nodes=1), env).values
    assert (values.min_nodes, values.max_nodes) == used


@pytest.mark.parametrize(
    ("asked", "more", "words"),
    [
        ((1, 64), {}, ""),
        ((1, 1), {}, "your --nnodes=1 is ignored; the job's range is 4 to 64 GPUs"),
        ((2, 8), {}, "your --nnodes=2:8 is ignored; the job's range is 4 to 64 GPUs"),
        ((1, 64), {"MALLEABLE_KEPT": "PET_NNODES"}, "your --nnodes=1:64 is ignored"),
    ],
)
def test_where_workers_are_counted_a_number_of_nodes_has_no_effect(
    asked: tuple[int, int], more: dict[str, str], words: str
) -> None:
    request = {"SLURM_SPANK_MALLEABLE": "4-64,unit=gpu", "PET_NNODES": "1:64"}
    rendezvous = adopted(
        replace(OURS, min_nodes=asked[0], max_nodes=asked[1]), ENV | request | more
    )
    assert (rendezvous.values.min_nodes, rendezvous.values.max_nodes) == (4, 64)
    assert [line.startswith(words) for line in rendezvous.lines] == ([True] if words else [])
    assert not rendezvous.is_narrowed


def test_a_torch_that_is_not_as_known_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "torch.distributed.elastic.rendezvous.api"
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert take_over(ENV, lambda instead: None, lambda: None)
    other = ModuleType(name)

    class RendezvousParameters:
        def __init__(self, what: str) -> None:
            self.what = what

    monkeypatch.setitem(sys.modules, name, other)
    assert not take_over(ENV, lambda instead: None, lambda: None)
    other.RendezvousParameters = RendezvousParameters  # type: ignore[attr-defined]
    assert not take_over(ENV, lambda instead: None, lambda: None)
    assert RendezvousParameters("so").what == "so"


@pytest.mark.parametrize("words", ["-", "--", "- --standalone", "-m - --standalone", ""])
def test_a_lone_dash_is_a_script(words: str) -> None:
    assert overrides(["torchrun", *words.split()], {"PET_RDZV_BACKEND": BACKENDS[0]}) == ""


@pytest.mark.parametrize(
    ("entrypoint", "args", "program"),
    [
        (sys.executable, ("-u", "train.py", "-m"), ["train.py"]),
        (sys.executable, ("-u", "-m", "pkg.train", "x"), ["-m", "pkg.train"]),
        ("/bin/bash", ("-u", "train.sh"), []),
        (sys.executable, ("train.py",), []),
        (print, (), []),
    ],
)
def test_the_program_that_workers_run(
    entrypoint: object, args: tuple[str, ...], program: list[str]
) -> None:
    assert program_of(entrypoint, args) == program


VARIABLES = {
    "PET_RDZV_BACKEND": "c10d",
    "PET_RDZV_ENDPOINT": "no-such-host.invalid:29500",
    "PET_RDZV_ID": "mine",
    "PET_NNODES": "1",
    "MALLEABLE_KEPT": "PET_NNODES,PET_RDZV_BACKEND,PET_RDZV_ENDPOINT,PET_RDZV_ID",
    "MALLEABLE_ENGINE": "torchrun",
    "MALLEABLE_MIN": "1",
    "MALLEABLE_MAX": "5",
    "MALLEABLE_UNIT": "1",
}
RIGID = (
    # the examples of PyTorch's own documentation for Slurm
    "--nnodes=4 --rdzv_id=101 --rdzv_backend=c10d --rdzv_endpoint=no-such-host.invalid:29500",
    "--nnodes 1 --nproc-per-node 1 --node-rank 0 --master-addr 127.0.0.1 --master-port 29500"
    " --rdzv-backend static",
    "--standalone --nproc-per-node=1 --max-restarts=0",
)


@pytest.mark.torch
def test_scripts_of_rigid_jobs_train_together(gang: Gang) -> None:
    """Each fragment asks for its own rendezvous, by flags, by variables, or by a launcher.

    The launcher gives torch its own values. The fragments form a single world, survive a death, and
    log their meeting point.
    """
    for fragment, flags in enumerate(RIGID):
        gang.flags = flags.split()
        gang.start(fragment, "1:5", 100_000)
    gang.flags, gang.extra = [], {**VARIABLES, "MALLEABLE_DIR": str(gang.shared)}
    gang.start(3, "1:5", 100_000)
    gang.extra, gang.launcher = {}, [str(Path(__file__).with_name("launch_as_accelerate.py"))]
    gang.start(4, "1:5", 100_000)
    gang.wait_world(5)
    killed_at = time.time()
    gang.cut_off(0, signal.SIGKILL)
    gang.wait_world(4, since=killed_at)
    (gang.work / "enough").touch()
    assert gang.wait_exit(1, 2, 3, 4) == [0] * 4, gang.dump()
    said = [gang.log(fragment).count("fragments use the job") for fragment in gang.agents]
    assert said == [1] * 5, gang.dump()
    assert [r["cause"] for r in gang.rounds()][-1] == "lost 0"
