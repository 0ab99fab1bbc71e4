"""A training that counts, as its model, how often it has learnt each sample.

It chains the batches of its steps into a number, and uses all of `slurm_hooks.elastic`. Arguments:
work directory, steps, steps between two files. A file `enough` ends it sooner. With TRAIN_WATCH it
saves no file in between and asks for no notice, but has its state watched.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from slurm_hooks.elastic import Checkpoint, ElasticBatches, notice, report

# There is no optimizer here. A warm worker reads this line, and spares two seconds of a processor.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
SAMPLES, BATCH, STEP_S = 997, 24, 0.03
PRIME = 2**31 - 1
IS_WATCHED = bool(os.environ.get("TRAIN_WATCH"))


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


def difference(step: int, steps: int, model: dict[str, torch.Tensor]) -> dict[str, float]:
    """The difference between the model and its correct state after `step` steps."""
    wanted = torch.zeros(SAMPLES)
    whole = ElasticBatches(SAMPLES, BATCH, steps, rank=0, world=1)
    for done in range(step):
        for index in whole.batch_of(done):
            wanted[index] += 1
    off = model["counts"] - wanted
    return {
        "off": int(off.abs().sum()),
        "loss": float(((model["weight"] - torch.linspace(-1, 1, SAMPLES)) ** 2).mean()),
        "step": step,
        "lost": int((-off).clamp(min=0).sum()),
        "twice": int(off.clamp(min=0).sum()),
        "weight": float(model["weight"]),
        "chain": int(model["chain"]),
    }


def main() -> None:
    work, steps, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    checkpoint = Checkpoint(work / "checkpoint.pt")
    first, content = checkpoint.load()
    counts = content.get("counts", torch.zeros(SAMPLES))
    target = torch.linspace(-1, 1, SAMPLES)
    weight = content.get("weight", torch.zeros(1))
    chain = content.get("chain", torch.zeros(1, dtype=torch.int64))
    model = {"counts": counts, "weight": weight, "chain": chain}  # changed in place
    if IS_WATCHED:
        checkpoint.watch(lambda: model)
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    fragment = int(os.environ["MALLEABLE_FRAGMENT"])
    begin = {"rank": rank, "world": world, "fragment": fragment, "agent": os.getppid()}
    begin = {**begin, "restarts": restarts, "step": first, "t": time.time()}
    log(work / "begins.jsonl", json.dumps(begin))
    step = first
    for step, share in enumerate(ElasticBatches(SAMPLES, BATCH, steps, start=first), first + 1):
        time.sleep(STEP_S)
        learnt = torch.zeros(SAMPLES)
        for index in share:
            learnt[index] += 1
        gradient = ((weight - target) * learnt).sum().reshape(1) / BATCH
        enough = torch.tensor([float((work / "enough").exists())])
        dist.all_reduce(learnt)
        dist.all_reduce(gradient)
        dist.all_reduce(enough)
        checkpoint.changing()
        counts += learnt
        weight -= 0.05 * gradient
        chain.mul_(31).add_((learnt.long() * torch.arange(SAMPLES)).sum()).remainder_(PRIME)
        checkpoint.reached(step)
        if not IS_WATCHED or step % every == 0:
            checkpoint.save(step, model, to_file=step % every == 0)
        if rank == 0:
            log(work / "steps.log", f"{time.time():.3f} {step} {world}")
        report(step * BATCH)
        if not IS_WATCHED and (coming := notice()):
            checkpoint.save(step, model)
            coming.ready()
        if enough:
            break
    dist.barrier()
    if rank == 0:
        (work / "finished").write_text(
            json.dumps({**difference(step, steps, model), "world": world})
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
