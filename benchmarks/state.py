"""How long a state takes into a node's memory and out of it: `python benchmarks/state.py`.

Seconds (CPU seconds of the process) for one training process to save, for a survivor to have its
state again, and for a newcomer to get it from one node and from three, over gloo, all on this
host: `load()`, and the copy of it into live tensors. With `--before COMMIT` an older version does
the same in turns with this one. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[1]
Seconds = tuple[float, float]  # on the clock, of CPU time
TENSOR = 16 << 20
MOST_COPIES_MIB = 10_000  # of the older version, which copies the state five times per process
HOLDERS = {"newcomer, 1 holder": 1, "newcomer, 3 holders": 3}
ROWS = ("save, first", "save, again", "save with file", "file complete", "survivor", *HOLDERS)


def state(mib: int) -> dict[str, Any]:
    """Large tensors as a model has them, and some small ones."""
    layers = {
        f"layer{n}": torch.full((TENSOR // 4,), float(n)) for n in range((mib << 20) // TENSOR)
    }
    return {"model": layers, "small": [torch.ones(100) for _ in range(200)], "epoch": 3}


def copied(content: dict[str, Any], live: dict[str, Any]) -> None:
    """As load_state_dict does."""
    for name, tensor in live["model"].items():
        tensor.copy_(content["model"][name])


class Watch:
    """Seconds since it was made: on the clock, and of this process's CPU time, which other work
    on the host disturbs less."""

    def __init__(self) -> None:
        self._begun = time.monotonic(), time.process_time()

    def read(self) -> Seconds:
        return time.monotonic() - self._begun[0], time.process_time() - self._begun[1]


def timed(work: Callable[[], Any]) -> Seconds:
    """Its seconds."""
    watch = Watch()
    work()
    return watch.read()


def median(some: list[Seconds]) -> Seconds:
    """Of both kinds of seconds."""
    return statistics.median(s for s, _ in some), statistics.median(s for _, s in some)


def alone(body: Callable[[], dict[str, Seconds]]) -> dict[str, Seconds]:
    """What it returns, run in a child of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        found = body()
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        text = file.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("a process of the benchmark failed; its error stands above")
    return dict(json.loads(text)) if text else {}


def savings(env: dict[str, str], mib: int, work: Path) -> dict[str, Seconds]:
    """One process that saves."""
    from slurm_hooks.elastic import Checkpoint  # noqa: PLC0415

    os.environ.update(env)
    checkpoint, live = Checkpoint(work / "state.pt"), state(mib)
    first = [timed(lambda n=n: checkpoint.save(n, live, to_file=False)) for n in (1, 2)]
    again = [timed(lambda n=n: checkpoint.save(n, live, to_file=False)) for n in (3, 4, 5)]
    found = {"save, first": median(first), "save, again": median(again)}
    watch = Watch()
    checkpoint.save(6, live)
    found["save with file"] = watch.read()
    getattr(checkpoint, "wait", lambda: None)()
    found["file complete"] = watch.read()
    (work / "state.pt").unlink()
    return found


def loading(env: dict[str, str], mib: int, rank: int, world: int, work: Path) -> dict[str, Seconds]:
    """One process of a group that resumes."""
    from slurm_hooks.elastic import Checkpoint  # noqa: PLC0415

    os.environ.update({**env, "GROUP_RANK": str(rank)})
    live = state(mib) if rank == world - 1 else {}
    if world > 1:
        init = f"file://{work}/store-{world}"
        dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
        dist.barrier()
    watch = Watch()
    step, content = Checkpoint(work / "state.pt").load()
    if live:
        copied(content, live)
        seconds = watch.read()
        assert step == 6
        assert float(live["model"]["layer1"][-1]) == 1.0
    if world > 1:
        dist.barrier()
    return {"seconds": seconds} if live else {}


def group(
    env: dict[str, str], fresh: dict[str, str], mib: int, holders: int, work: Path
) -> Seconds:
    """The seconds of the newcomer. Holders on one host share one copy, to spare its memory."""
    children = []
    for rank in range(holders):
        child = os.fork()
        if child == 0:
            loading(env, mib, rank, holders + 1, work)
            os._exit(0)
        children.append(child)
    found = alone(lambda: loading(fresh, mib, holders, holders + 1, work))
    for child in children:
        os.waitpid(child, 0)
    return found["seconds"]


def one_run(mib: int, is_before: bool, is_alone: bool) -> dict[str, Seconds]:
    """All figures of the version that is imported; tensors are made in children only."""
    from slurm_hooks.elastic.mailbox import Mailbox  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        work, agent = Path(name), Mailbox()
        env = agent.environment()
        found = alone(lambda: savings(env, mib, work))
        found["survivor"] = alone(lambda: loading(env, mib, 0, 1, work))["seconds"]
        for row, holders in HOLDERS.items():
            if is_alone or (is_before and mib * 5 * (holders + 1) > MOST_COPIES_MIB):
                continue
            found[row] = group(env, Mailbox().environment(), mib, holders, work)
    return found


def run(tree: Path, mib: int, *flags: str) -> dict[str, Seconds]:
    """The same in a process that imports that tree."""
    command = [sys.executable, __file__, "--run", str(mib), *filter(None, flags)]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=900, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def older(commit: str, where: Path) -> Path:
    """What runs in a job, as it was."""
    command = ["git", "-C", str(ROOT), "archive", commit, "slurm_hooks"]
    files = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60).stdout
    subprocess.run(["tar", "-x", "-C", str(where)], input=files, check=True, timeout=60)
    return where


def table(mib: int, runs: dict[str, list[dict[str, Seconds]]]) -> dict[str, dict[str, Seconds]]:
    """Medians, printed."""
    medians = {
        version: {
            row: tuple(round(s, 3) for s in median([one[row] for one in each]))
            for row in ROWS
            if each and row in each[0]
        }
        for version, each in runs.items()
    }
    for row in ROWS:
        cells = ["{:>9} ({})".format(*medians[v].get(row, ("-", "-"))) for v in medians]
        print(f"{mib:>6} MiB  {row:<22}{' '.join(cells)}", flush=True)
    return medians


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="64,256,1024", help="MiB, with commas")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--before", metavar="COMMIT", help="compare with this version")
    parser.add_argument("--alone", action="store_true", help="without newcomers")
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--is-before", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(one_run(options.run, options.is_before, options.alone)))
        return 0
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        trees = {"before": older(options.before, Path(name))} if options.before else {}
        for mib in map(int, options.sizes.split(",")):
            runs: dict[str, list[dict[str, Seconds]]] = {v: [] for v in (*trees, "now")}
            for _ in range(options.times):
                for version, each in runs.items():
                    flags = "--is-before" * (version == "before"), "--alone" * options.alone
                    each.append(run(trees.get(version, ROOT), mib, *flags))
            told[str(mib)] = table(mib, runs)
    print(json.dumps({"benchmark": "state", "seconds": told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
