"""The standard training of the tests: it behaves as a user's does, where small trainings do not.

Its first step comes ten seconds after its start (TRAIN_START_S): half of them pass before it joins
the others, as with imports and an index of the data, and half before its first step, as with a
compiler. Worker processes draw its batches, new workers in each epoch, and persistent workers
draw those of its evaluations. Its processes differ: in their generator, in their position in
the data, in BatchNorm's statistics, and before DistributedDataParallel in their weights. Its
average of the weights makes a new state at each call.

It notes a digest of its state at each step boundary, and counts how often each sample was learnt.
Arguments: work directory, steps, and `watch` (our Checkpoint watches its objects) or `save` (it
writes a file every twenty steps, without our library). A file `enough` ends it sooner.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

SAMPLES, BATCH, EVERY = 480, 12, 20
EPOCH = SAMPLES // BATCH  # steps
START_S = float(os.environ.get("TRAIN_START_S", "10"))
STEP_S, UPDATE_S = 0.03, 0.01  # of which the update of the weights takes a part


class Samples(Dataset):  # type: ignore[type-arg]
    """Numbers, with noise of the process that draws them, and their index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.linspace(-1, 1, 8) * index / SAMPLES + 0.01 * torch.randn(8), index


class Order:
    """The batches of this process. It knows its position, which is ahead of the training."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.world, self.step = rank, world, 0
        self.seen: dict[str, Any] = {"samples": 0, "last": []}

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the epoch from `step` on."""
        shuffle = torch.Generator().manual_seed(self.step // EPOCH)
        order = torch.randperm(SAMPLES, generator=shuffle).tolist()
        for first in range(self.step % EPOCH * BATCH, SAMPLES, BATCH):
            share = order[first : first + BATCH][self.rank :: self.world]
            self.seen["samples"] += len(share)
            self.seen["last"] = share[:1]
            yield share

    def state_dict(self) -> dict[str, Any]:
        return self.seen  # live: a keeper must copy it

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state


class Average:
    """The average of the weights, in tensors of its own."""

    def __init__(self, net: torch.nn.Module) -> None:
        self.of = {name: weight.detach().clone() for name, weight in net.named_parameters()}

    def update(self, net: torch.nn.Module) -> None:
        for name, weight in net.named_parameters():
            self.of[name] = torch.lerp(self.of[name], weight.detach(), 0.1)

    def state_dict(self) -> dict[str, Any]:
        return {"of": {name: weight.clone() for name, weight in self.of.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.of = dict(state["of"])


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


def digest(value: Any) -> str:
    """The digest of all content, to the bit."""
    hasher = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            hasher.update(value.detach().cpu().contiguous().view(-1).numpy().tobytes())
        elif isinstance(value, dict):
            for key in sorted(value, key=str):
                hasher.update(str(key).encode())
                add(value[key])
        elif isinstance(value, (list, tuple)):
            for inner in value:
                add(inner)
        else:
            hasher.update(repr(value).encode())

    add(value)
    return hasher.hexdigest()[:16]


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


class Training:
    """The objects of a training, and the effect of a step on them."""

    def __init__(self, rank: int, world: int) -> None:
        self.net, self.order, self.generator = Net(), Order(rank, world), torch.Generator()
        self.generator.manual_seed(rank)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 500)
        self.average = Average(self.net)

    def state(self) -> dict[str, Any]:
        content = {k: v.state_dict() for k, v in vars(self).items() if hasattr(v, "state_dict")}
        return {**content, "generator": self.generator.get_state()}

    def load(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state.pop("generator"))
        for name, content in state.items():
            getattr(self, name).load_state_dict(content)

    def batches(self, first: int, steps: int) -> Iterator[Any]:
        """The batches of the steps after `first`. New workers draw those of each epoch."""
        self.order.step = first
        while self.order.step < steps:
            loader = DataLoader(
                Samples(), batch_sampler=self.order, num_workers=2, generator=self.generator
            )
            for batch in loader:
                if self.order.step < steps:
                    yield batch
                    self.order.step += 1

    def step(self, model: torch.nn.Module, x: torch.Tensor, index: torch.Tensor) -> None:
        learnt = torch.zeros(SAMPLES).index_add_(0, index, torch.ones(len(index)))
        x = x.repeat(2, 1)  # BatchNorm wants more than a single sample
        loss = (model(x) - x.sum(1, keepdim=True)).square().sum() * self.order.world / BATCH
        self.optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(learnt)
        self.optimizer.step()
        time.sleep(UPDATE_S)
        self.scheduler.step()
        self.average.update(self.net)
        self.net.counts += learnt

    def evaluate(self, loader: Any) -> None:
        self.net.eval()
        with torch.no_grad():
            for x, _ in loader:
                self.net(x)
        self.net.train()


class Kept:
    """Has the state kept by our Checkpoint."""

    def __init__(self, work: Path, training: Training) -> None:
        from slurm_hooks.elastic import Checkpoint  # noqa: PLC0415  (the other way does without)

        self.checkpoint = Checkpoint(work / "checkpoint.pt")
        self.checkpoint.watch(**vars(training))

    def resume(self) -> int:
        return self.checkpoint.resume()

    def reached(self, step: int) -> None:
        self.checkpoint.reached(step)


class Saved:
    """Writes files as torch's examples do."""

    def __init__(self, work: Path, training: Training) -> None:
        self.file, self.training = work / "checkpoint.pt", training

    def resume(self) -> int:
        if not self.file.exists():
            return 0
        content = torch.load(self.file, weights_only=True)
        step = int(content.pop("step"))
        self.training.load(content)
        return step

    def reached(self, step: int) -> None:
        if step % EVERY == 0 and dist.get_rank() == 0:
            torch.save({**self.training.state(), "step": step}, self.file.with_suffix(".new"))
            os.replace(self.file.with_suffix(".new"), self.file)


def is_enough(work: Path) -> bool:
    """Tell whether any process has seen the file. All processes agree."""
    seen = torch.tensor([float((work / "enough").exists())])
    dist.all_reduce(seen)
    return bool(seen)


def conclude(work: Path, steps: int, net: Any) -> None:
    """Write how often samples were learnt too often or not often enough."""
    wanted, whole = torch.zeros(SAMPLES), Order(0, 1)
    while whole.step < steps:
        for share in whole:
            if whole.step < steps:
                wanted[share] += 1
            whole.step += 1
    off = int((net.counts - wanted).abs().sum())
    (work / "finished").write_text(json.dumps({"off": off, "steps": steps}))


def main() -> None:
    work, steps, way = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    time.sleep(START_S / 2)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    fragment = int(os.environ["MALLEABLE_FRAGMENT"])
    training = Training(rank, world)
    keeper = (Kept if way == "watch" else Saved)(work, training)
    first = keeper.resume()
    begin = {"rank": rank, "world": world, "fragment": fragment, "t": time.time(), "step": first}
    begin |= {"digest": digest(training.state()), "pid": os.getpid()}
    begin |= {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    log(work / "begins.jsonl", json.dumps(begin))
    training.generator.manual_seed(first * world + rank)  # of this process alone
    model = DistributedDataParallel(training.net)
    others = DataLoader(Samples(), 240, num_workers=2, persistent_workers=True)
    step = first
    for step, (x, index) in enumerate(training.batches(first, steps), first + 1):
        time.sleep(START_S / 2 if step == first + 1 else STEP_S - UPDATE_S)
        training.step(model, x, index)
        log(work / f"digests-{fragment}", f"{step} {digest(training.state())}")
        keeper.reached(step)
        log(work / f"reached-{fragment}", f"{time.time():.3f} {step} {world}")
        if rank == 0:
            log(work / "steps.log", f"{time.time():.3f} {step} {world}")
        if is_enough(work):
            break
        if step % EVERY == 0:
            training.evaluate(others)
    dist.barrier()
    if rank == 0:
        conclude(work, step, training.net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
