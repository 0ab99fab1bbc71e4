"""A torchft training that counts, as its model, how often it has learnt each sample.

It chains the batches of its steps into a number. Each replica group logs the steps it has
committed. A file every so many steps serves when no group is left with a newer state. Arguments:
work directory, steps, steps between two files.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torchft import Manager, ProcessGroupGloo

from slurm_hooks.elastic import ElasticBatches, notice

SAMPLES, BATCH, STEP_S = 997, 24, 0.03
PRIME, INDICES = 2**31 - 1, torch.arange(SAMPLES)


def log(path: Path, line: str) -> None:
    with open(path, "a") as file:
        file.write(line + "\n")


def save(path: Path, content: dict[str, object]) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    torch.save(content, draft)
    draft.replace(path)


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    every = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    torch.set_num_threads(1)
    fragment, is_first = os.environ["MALLEABLE_FRAGMENT"], os.environ["RANK"] == "0"
    model = {"counts": torch.zeros(SAMPLES), "weight": torch.zeros(1)}
    model["chain"] = torch.zeros(1, dtype=torch.int64)
    target = torch.linspace(-1, 1, SAMPLES)
    whole = ElasticBatches(SAMPLES, BATCH, steps, rank=0, world=1)
    pg = ProcessGroupGloo(timeout=timedelta(seconds=20))
    manager = Manager(
        pg=pg,
        load_state_dict=model.update,
        state_dict=lambda: {name: value.clone() for name, value in model.items()},
        min_replica_size=1,
        use_async_quorum=False,
        replica_id=f"fragment{fragment}",
        hostname="127.0.0.1",
    )
    checkpoint = work / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.update(saved["model"])
        manager.load_state_dict(saved["torchft"])
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    begin = {"fragment": int(fragment), "agent": os.getppid(), "restarts": restarts}
    log(work / "begins.jsonl", json.dumps({**begin, "rank": 0, "world": 0, "t": time.time()}))
    while manager.current_step() < steps and not (work / "enough").exists():
        manager.start_quorum()
        rank, world = manager.participating_rank(), manager.num_participants()
        step = manager.current_step()
        learnt, gradient = torch.zeros(SAMPLES), torch.zeros(1)
        if rank is not None:
            for index in whole.batch_of(step)[rank::world]:
                learnt[index] += 1
        gradient[0] = ((model["weight"] - target) * learnt).sum() / BATCH
        time.sleep(STEP_S)
        both = torch.cat([learnt, gradient]) * world
        manager.allreduce(both).wait()
        if manager.errored():
            pg.abort()  # a group that waits for us in this step need not wait for the time-out
        if manager.should_commit():
            together = both[:-1].round()
            model["counts"] += together
            model["chain"] = (model["chain"] * 31 + together.long() @ INDICES) % PRIME
            model["weight"] -= 0.05 * both[-1:]
            if is_first:
                log(work / f"steps-{fragment}.log", f"{time.time():.3f} {step + 1} {world}")
            if every and is_first and rank == 0 and (step + 1) % every == 0:
                save(checkpoint, {"model": model, "torchft": manager.state_dict()})
        if coming := notice():
            coming.ready()
    reached = manager.current_step()
    wanted = torch.zeros(SAMPLES)
    for step in range(reached):
        for index in whole.batch_of(step):
            wanted[index] += 1
    off = model["counts"] - wanted
    result = {
        "step": reached,
        "lost": int((-off).clamp(min=0).sum()),
        "twice": int(off.clamp(min=0).sum()),
        "weight": float(model["weight"]),
        "chain": int(model["chain"]),
    }
    if is_first:
        (work / f"finished-{fragment}").write_text(json.dumps(result))
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
