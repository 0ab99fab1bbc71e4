"""Jobs that count GPUs or tasks, on a real Slurm: the request of a waiting element, and its
grant.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import pytest
from spank_jobs import USER, printed, run_fragment, script, show, submit, wait_for

from kept_sandbox import cancel_jobs_of
from slurm_hooks.elastic.agent.workers_here import workers_here
from slurm_hooks.model import Slot
from slurm_hooks.sandbox import Sandbox
from slurm_hooks.sandbox.installation import Installation
from slurm_hooks.slurm.mark import parse_mark

NewSite = Callable[..., Sandbox]
pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(os.geteuid() != 0, reason="submits as another user, which needs root"),
]
BODY = """print_env batch
srun bash -c 'print_env step'
srun --ntasks=2 --cpus-per-task=1 bash -c 'echo task $SLURM_NTASKS'
"""
TORCHRUN = "\n: torchrun train.py\n"  # as the script of a training looks


@pytest.fixture(scope="module")
def site(new_site: NewSite) -> Sandbox:
    """Three nodes of eight GPUs, which jobs share."""
    return new_site(nodes=3, cpus=32, memory_mib=64000, gpus=8)


@pytest.fixture(autouse=True)
def _tidy(site: Sandbox) -> Iterator[None]:
    yield
    cancel_jobs_of(site, USER)


def element(site: Sandbox, *options: str) -> tuple[str, dict[str, str]]:
    path = script(site, "parts", TORCHRUN)
    job = submit(site, path, *options)
    return job, show(site, job)


def slot_of(seen: dict[str, str]) -> Any:
    pair = parse_mark(seen["AdminComment"])
    assert pair
    return pair[0].request.slot


def refused(site: Sandbox, *options: str) -> str:
    path = script(site, "parts", TORCHRUN)
    done: subprocess.CompletedProcess[str] = site.run(
        ["sbatch", *options, str(path)], user=USER, check=False
    )
    assert done.returncode != 0
    return done.stderr


def resize(site: Sandbox, job: str, gpus: int = 4) -> None:
    """Resize to four workers, as a tick does before it releases an element."""
    cpus = [f"{key}=12" for key in ("CpusPerTask", "NumCPUs", "MinCPUsNode")]
    gres = [f"Gres=gpu:{gpus}"] if gpus else []
    sizes = [*gres, *cpus, "MinMemoryNode=4000", "TimeLimit=2"]
    site.run(["scontrol", "update", f"jobid={job}_0", *sizes])
    site.run(["scontrol", "release", f"{job}_0"])


def test_an_element_waits_with_a_single_gpu_of_its_share(site: Sandbox) -> None:
    _, seen = element(site, "--malleable=4-64,unit=gpu")
    assert (seen["ArrayTaskId"], seen["Partition"], seen["NumNodes"]) == ("0-2", "parts", "1-1")
    assert seen["TresPerNode"] in ("gres:gpu:1", "gres/gpu:1")
    assert (seen["NumTasks"], seen["NumCPUs"]) == ("1", "1")
    assert seen["AdminComment"].startswith("malleable{min=4,max=64,unit=1,engine=torchrun,frags=3,")
    assert slot_of(seen) == Slot("gpu")


@pytest.mark.parametrize(
    ("options", "slot"),
    [
        ("--gres=gpu:1 --cpus-per-gpu=3", Slot("gpu", 3)),
        ("--gres=gpu:1 --cpus-per-gpu=3 --mem-per-gpu=2G", Slot("gpu", 3, 2048)),
        ("--gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=3 --mem=32G", Slot("gpu", 3, 4096)),
        ("--gpus=8 --mem-per-gpu=1G", Slot("gpu", 0, 1024)),
        ("--gpus-per-task=1 --ntasks=4 --cpus-per-task=2", Slot("gpu", 2)),
        ("--nodes=2 --gres=gpu:8 --mem=0", Slot("gpu")),
    ],
)
def test_other_ways_to_ask_for_gpus(site: Sandbox, options: str, slot: Slot) -> None:
    _, seen = element(site, "--malleable=4-64,unit=2gpu", *options.split())
    assert slot_of(seen) == slot
    assert (seen["NumNodes"], seen["NumTasks"], seen["NumCPUs"]) == (
        "1-1",
        "1",
        str(2 * (slot.cpus or 1)),
    )
    assert seen["TresPerNode"] in ("gres:gpu:2", "gres/gpu:2")
    others = {"TresPerJob", "TresPerTask", "CpusPerTres", "MemPerTres"}
    assert not others & set(seen)


def test_tasks_without_gpus(site: Sandbox) -> None:
    options = ("--cpus-per-task=2", "--mem-per-cpu=100")
    _, seen = element(site, "--malleable=0-40,unit=task,engine=pool", *options)
    assert (seen["ArrayTaskId"], seen["Partition"]) == ("0-39", "parts")
    assert (seen["NumCPUs"], seen["MinMemoryNode"]) == ("2", "200M")
    assert "TresPerNode" not in seen
    assert slot_of(seen) == Slot("", 2, 200)


@pytest.mark.parametrize(("options", "workers"), [("--cpus-per-task=3", 4), ("", 12)])
def test_a_fragment_of_tasks_has_a_worker_for_each(
    site: Sandbox, options: str, workers: int
) -> None:
    path = script(site, "parts_tasks", BODY + TORCHRUN)
    Path(f"{path.with_suffix('')}.0.out").unlink(missing_ok=True)
    job = submit(site, path, "--malleable=2-16,unit=task", *options.split())
    resize(site, job, 0)
    log = wait_for(path.with_suffix(".0.out"), "\nEND\n")
    batch, step = printed(log, "batch"), printed(log, "step")
    assert batch["SLURM_SPANK_MALLEABLE_SLOT"] == f"cpu:{12 // workers}"
    assert batch["SLURM_CPUS_ON_NODE"] == batch["SLURM_CPUS_PER_TASK"] == "12"
    assert batch["PET_NPROC_PER_NODE"] == step["PET_NPROC_PER_NODE"] == str(workers)
    assert workers_here(batch) == workers


@pytest.mark.parametrize(("unit", "slot"), [("gpu", Slot("gpu")), ("task", Slot("", 2))])
def test_a_pool_from_the_command_line(site: Sandbox, unit: str, slot: Slot) -> None:
    options = ["--cpus-per-task=2"] if unit == "task" else []
    argv = ["pool", "--max=16", f"--unit={unit}", "--detach", *options, "--", "sleep", "9"]
    done = subprocess.run(
        [sys.executable, "-m", "slurm_hooks.cli", *argv],
        env={**os.environ, **site.environment},
        cwd=site.work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = show(site, done.stdout.strip())
    site.run(["scancel", done.stdout.strip()])
    assert (seen["ArrayTaskId"], seen["Partition"]) == ("0-15", "parts")
    assert slot_of(seen) == slot


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--malleable=4-64,unit=gpu --exclusive", "--exclusive: asks for whole nodes"),
        ("--malleable=4-64,unit=gpu --cpus-per-task=4", "write --gres=gpu:1 --cpus-per-gpu=N"),
        ("--malleable=4-64,unit=gpu --hint=nomultithread", "--threads-per-core: "),
        ("--malleable=4-64,unit=gpu --gpus=4 --ntasks-per-gpu=1", "--ntasks-per-gpu: "),
        ("--malleable=4-64,unit=task --gres=gpu:1", "write unit=gpu"),
        ("--malleable=4-64,unit=gpus", "unit=gpu"),
        ("--malleable=2-3 --partition=parts", "write --partition=malleable"),
    ],
)
def test_options_without_a_meaning_are_refused(site: Sandbox, options: str, said: str) -> None:
    assert said in refused(site, *options.split())


ALL = "ask for all 8 GPUs of a node instead, and use them in the script"
GETS = "note: the job asks for {} of each node, and gets whole nodes of 8 GPUs; write {}\n"


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("1-3 --gres=gpu:1", GETS.format("1 GPU", "--malleable=1-3,unit=gpu")),
        ("1-3 --gpus-per-node=2", GETS.format("2 GPUs", "--malleable=2-6,unit=2gpu")),
        ("1-3 --gpus=4", GETS.format("4 GPUs", "--malleable=4-12,unit=4gpu")),
        ("1-3 --ntasks-per-node=2 --gpus-per-task=1 -N1", GETS.format("2 GPUs", "--mall")[:-1]),
        ("1-3 --gres=gpu:1 --ntasks-per-gpu=1", GETS.replace("write {}", ALL).format("1 GPU")),
        ("1-3 --gres=gpu:1 --exclusive", ""),
        ("1-3 --gres=gpu:8", ""),
        ("1-3", ""),
        ("1-3,unit=gpu --gres=gpu:1", ""),
    ],
)
def test_a_job_of_whole_nodes_that_asks_for_fewer_gpus_hears_that_it_gets_all(
    site: Sandbox, options: str, note: str
) -> None:
    path = script(site, "parts", TORCHRUN)
    argv = ["sbatch", *f"--malleable={options}".split(), str(path)]
    said = site.run(argv, user=USER).stderr
    assert note in said
    assert bool(note) == ("whole nodes" in said)


def test_whole_nodes_are_as_before(site: Sandbox) -> None:
    _, seen = element(site, "--malleable=1-3", "--gres=gpu:8")
    assert (seen["Partition"], seen["OverSubscribe"], seen["NumNodes"]) == (
        "malleable",
        "NO",
        "1-1",
    )
    assert re.fullmatch(r"gres.gpu:8", seen["TresPerNode"])
    assert slot_of(seen) is None


@pytest.mark.parametrize(
    ("options", "of_step"),
    [
        ("", None),
        ("--gres=gpu:1", "0"),
        ("--gpus-per-node=2", "0,1"),
        ("--gpus=2", "0,1"),
        ("--gpus-per-task=1 --ntasks-per-node=1", "0"),
    ],
)
def test_srun_in_whole_nodes_gets_the_gpus_that_the_job_asks_for(
    site: Sandbox, installation: Installation, options: str, of_step: Optional[str]
) -> None:
    """The node and the batch script have all."""
    if "--gpus-per-task" in options and installation.version >= (23, 11):
        pytest.skip("sbatch refuses --gpus-per-task without --ntasks")
    body = "scontrol -d show job $SLURM_JOB_ID\nprint_env batch\nsrun bash -c 'print_env step'"
    path = script(site, "parts_whole", body + TORCHRUN)
    Path(f"{path.with_suffix('')}.0.out").unlink(missing_ok=True)
    _, log = run_fragment(site, path, "--malleable=1-3", *options.split())
    assert re.search(r"GRES=gpu[^ ]*:8\(IDX:0-7\)", log)
    assert printed(log, "batch")["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    step = printed(log, "step")
    assert step
    assert step.get("CUDA_VISIBLE_DEVICES") == of_step


# The variables that sbatch leaves would give srun another size than the fragment's.
@pytest.mark.parametrize(
    "options",
    [
        "--gpus=2",
        "--gpus-per-node=2",
        "--gpus-per-node=8 --ntasks-per-node=8 --cpus-per-task=3",
        "--gpus-per-task=1 --ntasks=2 --cpus-per-gpu=3 --mem-per-gpu=1000",
    ],
)
def test_a_plain_srun_gets_the_whole_fragment(site: Sandbox, options: str) -> None:
    path = script(site, "parts_env", BODY + TORCHRUN)
    Path(f"{path.with_suffix('')}.0.out").unlink(missing_ok=True)
    env = {"TORCH_ELASTIC_WORKER_IDENTICAL": "1"}
    job = submit(site, path, "--malleable=2-8,unit=gpu", *options.split(), env=env)
    resize(site, job)
    log = wait_for(path.with_suffix(".0.out"), "\nEND\n")
    batch, step = printed(log, "batch"), printed(log, "step")
    assert batch["CUDA_VISIBLE_DEVICES"] == step["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert (batch["SLURM_GPUS_ON_NODE"], batch["SLURM_CPUS_ON_NODE"]) == ("4", "12")
    assert step["SLURM_CPUS_ON_NODE"] == "12"
    assert (batch["SLURM_NTASKS"], step["SLURM_NTASKS"]) == ("1", "1")
    assert re.findall(r"^task (\d)$", log, re.MULTILINE) == [
        "2",
        "2",
    ]  # a step may have its own size
    assert (batch["PET_NNODES"], batch["PET_NPROC_PER_NODE"]) == ("1:8", "gpu")
    assert batch["SLURM_SPANK_MALLEABLE"] == "2-8,unit=gpu,engine=torchrun"
    assert batch["SLURM_SPANK_MALLEABLE_SLOT"].startswith("gpu")
    assert "TORCH_ELASTIC_WORKER_IDENTICAL" not in batch
    assert "TORCH_ELASTIC_WORKER_IDENTICAL is unset" in log


def test_a_user_cannot_change_the_size_of_a_fragment(site: Sandbox) -> None:
    job, _ = element(site, "--malleable=2-8,unit=gpu", "--gpus=8", "--cpus-per-gpu=2")
    site.run(["scontrol", "update", f"jobid={job}_1", "Comment=apart"])
    before = show(site, f"{job}_1")
    for change in (
        *("Gres=gpu:4", "TresPerNode=gres:gpu:4", "TresPerJob=gres:gpu:4", "NumCPUs=4"),
        *("CpusPerTask=4", "MinCPUsNode=4", "MinMemoryNode=4000", "MinMemoryCPU=500"),
        *("NumTasks=4", "TasksPerNode=4", "NumNodes=2", "Partition=malleable", "OverSubscribe=YES"),
        *("CpusPerTres=gres:gpu:4", "MemPerTres=gres:gpu:400", "ReqThreads=1", "CoreSpec=1"),
    ):
        argv = ["scontrol", "update", f"jobid={job}_1", change]
        assert site.run(argv, user=USER, check=False).returncode != 0, change
    after = show(site, f"{job}_1")
    assert {key for key in before if before[key] != after.get(key)} <= {"LastSchedEval"}
