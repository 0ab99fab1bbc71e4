"""A training whose live objects are watched.

The objects are BatchNorm, momentum, a scheduler, a scaler, a sampler, a generator, and a count of
how often each sample was learnt. It makes no copy itself, but notes a digest of its state at each
step boundary. So a test can compare the resumed state.

With TRAIN_GAN_S the processes wait for each other between the steps of the two optimizers, after so
many seconds, as a GAN's do.

Arguments: work directory, steps. A file `enough` ends it sooner. TRAIN_HANDLER is a SIGTERM handler
of the script. With TRAIN_ABORTS its backend claims to end a process whose peer is lost, and does so
as NCCL does: a separate thread aborts, whatever the others do.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from train_usual import digest

from slurm_hooks.elastic import Checkpoint, ElasticBatches

SAMPLES, BATCH = 97, 12
STEP_S, ZONE_S = float(os.environ.get("TRAIN_STEP_S", "0.02")), 0.01
UNWATCHED = ("inputs", "steps")
GAN_S = float(os.environ.get("TRAIN_GAN_S", "0"))


class Sampler:
    """Knows only its position."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {"samples": 0, "last": []}

    def state_dict(self) -> dict[str, Any]:
        return self.seen  # live: a keeper must copy it

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state


class Net(torch.nn.Module):
    """A small net with statistics and the count."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)
        )
        self.register_buffer("counts", torch.zeros(SAMPLES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


def own_handler(work: Path) -> None:
    kind = os.environ.get("TRAIN_HANDLER", "")
    if kind == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif kind == "exit":
        signal.signal(signal.SIGTERM, lambda *_: (log(work / "handled", "yes"), sys.exit(3)))
    elif kind == "stay":
        signal.signal(signal.SIGTERM, lambda *_: log(work / "handled", "yes"))


class Training:
    """The objects, and the effect of a step on them."""

    def __init__(self) -> None:
        self.net, self.sampler, self.generator = Net(), Sampler(), torch.Generator()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.second = torch.optim.SGD(self.net.layers[2].parameters(), lr=0.001, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 50)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=7)
        self.inputs = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(1))
        self.steps = 0

    def digest(self) -> str:
        content = {k: v.state_dict() for k, v in vars(self).items() if hasattr(v, "state_dict")}
        return digest({**content, "generator": self.generator.get_state()})

    def step(self, model: torch.nn.Module, share: list[int]) -> None:
        self.sampler.seen["samples"] += len(share)  # in the middle of a step, as samplers do
        self.sampler.seen["last"].append(share[0])
        del self.sampler.seen["last"][:-3]
        torch.rand(3, generator=self.generator)
        learnt = torch.zeros(SAMPLES)
        for index in share:  # a batch between two epochs may have a sample twice
            learnt[index] += 1
        x = self.inputs[share].repeat(2, 1)  # BatchNorm wants more than a single sample
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        dist.all_reduce(learnt)
        self.scaler.step(self.optimizer)
        time.sleep(ZONE_S)
        if GAN_S:
            self.wait_for_others()
        self.second.step()
        self.scaler.update()
        self.scheduler.step()
        self.net.counts += learnt
        self.steps += 1

    def wait_for_others(self) -> None:
        """Note that the state is torn, and meet."""
        fragment = os.environ["MALLEABLE_FRAGMENT"]
        log(Path(sys.argv[1]) / f"torn-{fragment}", f"{time.time():.3f} {self.steps + 1}")
        time.sleep(GAN_S)
        dist.all_reduce(torch.zeros(1))


def is_enough(work: Path) -> bool:
    """Tell whether any process has seen the file. All processes agree."""
    seen = torch.tensor([float((work / "enough").exists())])
    dist.all_reduce(seen)
    return bool(seen)


def conclude(work: Path, steps: int, net: Net) -> None:
    """Write how often samples were learnt too often or not often enough."""
    wanted = torch.zeros(SAMPLES)
    whole = ElasticBatches(SAMPLES, BATCH, steps, rank=0, world=1)
    for step in range(steps):
        for index in whole.batch_of(step):
            wanted[index] += 1
    off = int((net.counts - wanted).abs().sum())
    (work / "finished").write_text(json.dumps({"off": off}))


def backend() -> str:
    """gloo, under another name where the process is to end as under that backend."""
    if "TRAIN_ABORTS" not in os.environ:
        return "gloo"
    dist.Backend.register_backend("hccl", dist.ProcessGroupGloo, devices=["cpu"])
    return "hccl"


def abort_without_a_peer() -> None:
    """Act as NCCL's watchdog: a thread ends the process as soon as a peer is lost."""
    pids: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())

    def watch() -> None:
        while all(
            Path(f"/proc/{pid}/exe").exists() for pid in pids
        ):  # a zombie has no command line
            time.sleep(0.01)
        os.abort()

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group(backend())
    if "TRAIN_ABORTS" in os.environ:
        abort_without_a_peer()
    rank, world = dist.get_rank(), dist.get_world_size()
    fragment = int(os.environ["MALLEABLE_FRAGMENT"])
    training = Training()
    checkpoint = Checkpoint(work / "checkpoint.pt")
    checkpoint.watch(**{k: v for k, v in vars(training).items() if k not in UNWATCHED})
    own_handler(work)
    training.steps = first = checkpoint.resume()
    begin = {"rank": rank, "world": world, "fragment": fragment, "t": time.time(), "step": first}
    begin |= {"digest": training.digest(), "pid": os.getpid()}
    begin |= {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    log(work / "begins.jsonl", json.dumps(begin))
    model = DistributedDataParallel(training.net)
    step = first
    for step, share in enumerate(ElasticBatches(SAMPLES, BATCH, steps, start=first), first + 1):
        time.sleep(STEP_S)
        training.step(model, share)
        log(work / f"digests-{fragment}", f"{step} {training.digest()}")
        checkpoint.reached(step)
        log(work / f"reached-{fragment}", f"{time.time():.3f} {step} {world}")
        if rank == 0:
            log(work / "steps.log", f"{time.time():.3f} {step} {world}")
        if is_enough(work):
            break
    dist.barrier()
    if rank == 0:
        conclude(work, step, training.net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
