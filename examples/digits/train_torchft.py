"""Train as train.py does, but with torchft.

Every replica group (here a single process) is independent, and the others train on when a group
comes or leaves. torchft's Manager finds its lighthouse through the environment. The groups first
agree on the members of a step, and then the share of this group is known. So the script takes the
share after zero_grad(). A run that grew and shrank sees the same samples as a run that did not.
"""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta

import torch
from torch.nn.functional import cross_entropy
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from train import GLOBAL_BATCH, SEED, arguments, batch_of, data, save


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    group = os.environ.get("REPLICA_GROUP_ID", "0")
    train_x, test_x, train_y, test_y = data()
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)
    )
    sgd = torch.optim.SGD(layers.parameters(), lr=0.2, momentum=0.9)
    pg = ProcessGroupGloo(timeout=timedelta(seconds=20))
    manager = Manager(
        pg=pg,
        state_dict=lambda: {"layers": layers.state_dict(), "optimizer": sgd.state_dict()},
        load_state_dict=lambda s: (
            layers.load_state_dict(s["layers"]),
            sgd.load_state_dict(s["optimizer"]),
        ),
        min_replica_size=1,
        use_async_quorum=False,
        replica_id=f"digits_{group}",
    )
    checkpoint = options.work / "checkpoint_torchft.pt"
    if checkpoint.exists():  # counts only if no group is running: the newest step wins
        saved = torch.load(checkpoint, weights_only=True)
        layers.load_state_dict(saved["layers"])
        sgd.load_state_dict(saved["optimizer"])
        manager.load_state_dict(saved["torchft"])
    model = DistributedDataParallel(manager, layers)
    optimizer = Optimizer(manager, sgd)
    print(f"step {manager.current_step()} of {options.steps}: group {group}", flush=True)

    while manager.current_step() < options.steps:
        began = time.monotonic()
        optimizer.zero_grad()  # the groups agree on who takes part in this step
        step, world = manager.current_step(), manager.num_participants()
        rank = manager.participating_rank() or 0
        mine = batch_of(step, len(train_x))[rank::world]
        # torchft averages over the groups. This scale makes it the mean over the global batch.
        loss = cross_entropy(model(train_x[mine]), train_y[mine], reduction="sum")
        (loss * world / GLOBAL_BATCH).backward()
        if manager.errored():
            pg.abort()  # who waits for this group's part need not wait for the time-out
        time.sleep(max(0.0, options.pace / world - (time.monotonic() - began)))
        optimizer.step()  # if a group was lost, the step is done again instead
        done = manager.current_step()
        if rank or done == step:
            continue
        if done % options.every == 0 or done == options.steps:
            content = {"layers": layers.state_dict(), "optimizer": sgd.state_dict()}
            save(checkpoint, {**content, "torchft": manager.state_dict()})
        if done % (5 * options.every) == 0:
            print(f"step {done} of {options.steps}: loss {loss.item() / len(mine):.3f}", flush=True)

    if manager.participating_rank() == 0:
        with torch.no_grad():
            accuracy = (layers(test_x).argmax(1) == test_y).float().mean().item()
        result = {"steps": options.steps, "accuracy": round(accuracy, 4)}
        (options.work / "result.json").write_text(json.dumps(result) + "\n")
        print(f"accuracy {accuracy:.3f} on held-out digits", flush=True)
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main()
