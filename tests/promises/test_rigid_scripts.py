"""On a real Slurm: scripts as PyTorch's and Lightning's pages print them, with a flag more."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from promises.bench import TRAINER, WITH_TORCHRUN, Bench
from promises.test_training import is_over
from slurm_hooks.model import FragmentState
from slurm_hooks.sandbox import Sandbox
from waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.torch]
TREE = Path(__file__).resolve().parents[2]
DIGITS = TREE / "examples" / "digits" / "train.py"
QUICKSTART = TREE / "docs" / "users" / "quickstart.md"

# distributed/ddp-tutorial-series/slurm/sbatch_run.sh of pytorch/examples, without its GPUs.
PYTORCH = r"""#!/bin/bash
#SBATCH --job-name=multinode-example
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --cpus-per-task=2
{path}
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
nodes_array=($nodes)
head_node=${{nodes_array[0]}}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
echo Node IP: $head_node_ip
srun torchrun \
--nnodes 4 \
--nproc_per_node 1 \
--rdzv_id $RANDOM \
--rdzv_backend c10d \
--rdzv_endpoint $head_node_ip:29500 \
train.py --steps=100000 --pace=0.05
"""


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Bench]:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    bench = Bench(sandbox, notice_s=10)
    bench.share_at_once()
    shutil.copy(DIGITS, sandbox.work / "train.py")
    yield bench
    bench.cancel_all()


def sbatch(bench: Bench, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Submits the script as it is."""
    path = bench.box.work / "rigid.sh"
    path.write_text(text.format(path=WITH_TORCHRUN))
    user = TRAINER if os.geteuid() == 0 else None
    done: subprocess.CompletedProcess[str] = bench.box.run(
        ["sbatch", "--parsable", *options, str(path)], user=user, check=False
    )
    return done


def rounds(bench: Bench, job: int) -> list[dict[str, list[int]]]:
    path = bench.directory(job) / "rounds.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trains_on_every_node(bench: Bench, job: int) -> None:
    """Wait for a round with an agent from each of the four nodes."""

    def is_so() -> bool:
        bench.tick()
        return any(line["size"] == 4 for line in rounds(bench, job))

    wait_until(is_so, 120, lambda: (rounds(bench, job), bench.states(job)), every_s=0.5)
    whole = next(line for line in rounds(bench, job) if line["size"] == 4)
    assert sorted(whole["fragments"]) == [0, 1, 2, 3]


def test_the_script_of_pytorchs_tutorial_trains_on_every_node(bench: Bench) -> None:
    done = sbatch(bench, PYTORCH, "--malleable=1-4")
    line = "sbatch: malleable: --nodes=4 and --ntasks=4 are replaced by --malleable=1-4\n"
    assert done.stderr == line
    trains_on_every_node(bench, int(done.stdout))


# docs/source-pytorch/clouds/cluster_advanced.rst of Lightning, without its GPUs.
LIGHTNING = """#!/bin/bash -l
# SLURM SUBMIT SCRIPT
#SBATCH --nodes=4             # This needs to match Trainer(num_nodes=...)
#SBATCH --ntasks-per-node=2   # This needs to match Trainer(devices=...)
#SBATCH --mem=0
#SBATCH --time=0-02:00:00
{path}
# debugging flags (optional)
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
# run script from above
srun python3 train.py
"""


def test_the_script_of_lightnings_page_is_refused_with_the_line_to_write(bench: Bench) -> None:
    refused = sbatch(bench, LIGHTNING, "--malleable=1-4")
    line = "torchrun --nproc-per-node=2 train.py"
    assert refused.returncode != 0
    assert f"write `{line}` instead" in refused.stderr
    mended = LIGHTNING.replace("srun python3 train.py", f"{line} --steps=100000 --pace=0.05")
    done = sbatch(bench, mended, "--malleable=1-4")
    assert done.stderr == (
        f"sbatch: malleable: --nodes=4 is replaced by --malleable=1-4\n{cut('2:00:00')}"
    )
    trains_on_every_node(bench, int(done.stdout))


def cut(time: str) -> str:
    """The note on a time above the longest lease of the sandbox."""
    after = "the longest lease here; the job continues after it"
    return f"sbatch: note: --time={time} is cut to 10:00, {after}\n"


def shown(first: str) -> str:
    """The script of the page whose first line begins so, without the GPUs."""
    block = re.search(rf"(?m)^    ({first}.*\n(?:    .*\n)+)", QUICKSTART.read_text())
    assert block
    lines = [line.strip() for line in block[1].splitlines() if "--gres" not in line]
    return "\n".join(["#!/bin/bash", *lines[1:], ""])


def test_the_torchrun_scripts_that_users_are_shown_are_both_accepted(bench: Bench) -> None:
    rigid = shown("# before, torchrun")
    assert rigid.count("\\\n--rdzv-backend=c10d") == 1
    line = "sbatch: malleable: --nodes=4 and --ntasks=4 are replaced by --malleable=2-4\n"
    assert sbatch(bench, rigid, "--malleable=2-4").stderr == line + cut("2-00:00:00")
    assert sbatch(bench, shown("#!/bin/bash"), "--malleable=2-4").stderr == ""


def test_the_lightning_scripts_that_users_are_shown(bench: Bench) -> None:
    refused = sbatch(bench, shown("# before, Lightning"), "--malleable=2-4")
    line = shown("#!/bin/bash").splitlines()[-1]
    assert line == "torchrun --nproc-per-node=8 train.py"
    assert f"write `{line}` instead" in refused.stderr
    assert "--signal=SIGUSR1@90: Slurm would signal each fragment" in refused.stderr


def test_a_torchrun_for_each_task_is_refused_with_the_line_to_write(bench: Bench) -> None:
    text = TWICE.replace("$run", "torchrun")
    refused = sbatch(bench, text, "--malleable=1-4")
    assert refused.returncode != 0
    assert "srun starts torchrun twice on each node; write --ntasks-per-node=1" in refused.stderr
    mended = text.replace("--ntasks-per-node=2", "--ntasks-per-node=1")
    assert sbatch(bench, mended, "--malleable=1-4").stderr == ""


# Two tasks on each node, in a way that the submission cannot see.
TWICE = """#!/bin/bash
#SBATCH --ntasks-per-node=2
{path}
run=torchrun
srun $run train.py --steps=100 --pace=0.05
"""


def test_several_agents_on_a_node_train_once_and_the_rest_say_so(bench: Bench) -> None:
    job = int(sbatch(bench, TWICE, "--malleable=4-4").stdout)
    trains_on_every_node(bench, job)
    bench.tick_until(job, is_over)
    assert not [f for f in bench.job(job).fragments if f.state is FragmentState.FAILED]
    log = (bench.box.work / f"slurm-{job}_0.out").read_text()
    assert log.count("write --ntasks-per-node=1. This is number 2: it waits") == 1, log
