"""The same as rescale_train.py for torchft: a step is an allreduce of the groups and 30 ms. Every
group keeps the steps that it has committed.
"""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from rescale_notes import STEP_S, is_over
from torchft import Manager, ProcessGroupGloo


def main() -> None:
    work, group = Path(sys.argv[1]), os.environ["REPLICA_GROUP_ID"]
    torch.set_num_threads(1)
    model = {"weight": torch.zeros(256)}
    pg = ProcessGroupGloo(timeout=timedelta(seconds=20))
    manager = Manager(
        pg=pg,
        load_state_dict=model.update,
        state_dict=lambda: {"weight": model["weight"].clone()},
        min_replica_size=1,
        use_async_quorum=False,
        replica_id=f"group{group}",
        hostname=os.environ["MASTER_ADDR"],
    )
    restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    begin = {"rank": 0, "fragment": int(group), "restarts": restarts, "t": time.time()}
    with open(work / "begins.jsonl", "a") as file:
        file.write(json.dumps(begin) + "\n")
    while not is_over():
        manager.start_quorum()
        time.sleep(STEP_S)
        gradient = torch.ones(256)
        manager.allreduce(gradient).wait()
        if manager.errored():
            pg.abort()
        if manager.should_commit():
            model["weight"] += gradient
            with open(work / f"steps-{group}.log", "a") as file:
                line = f"{time.time():.3f} {manager.current_step()} {manager.num_participants()}\n"
                file.write(line)


if __name__ == "__main__":
    main()
