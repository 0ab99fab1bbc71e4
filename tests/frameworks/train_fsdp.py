"""FSDP2 and torch.distributed.checkpoint, as users write it, without our library.

Every ten steps a checkpoint is written to a new directory, which then gets its name. With several
processes on a node it is HSDP: the state is sharded within a node, and each node has all of it.

Arguments: work directory, steps. With TRAIN_NOTICE a checkpoint is written before a planned change,
too.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from train_notes import RANK, WORLD, note_begin, note_step

from slurm_hooks.elastic import notice

LOCAL = int(os.environ["LOCAL_WORLD_SIZE"])
IS_WARNED = "TRAIN_NOTICE" in os.environ


class Part:
    """Model and optimizer, for torch.distributed.checkpoint."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, object]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, object]) -> None:
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.step = state["step"]


def save(part: Part, place: Path) -> None:
    draft = place.with_name("new")
    dcp.save({"part": part}, checkpoint_id=draft)
    if RANK == 0:
        os.replace(draft, place.with_name(f"step-{part.step}"))
    dist.barrier()


def newest(place: Path) -> Path | None:
    paths = sorted(place.parent.glob("step-*"), key=lambda path: int(path.name[5:]))
    all_ = [paths[-1] if paths else None]
    dist.broadcast_object_list(all_, 0)
    return all_[0]


def mesh() -> DeviceMesh:
    if LOCAL == 1:
        return init_device_mesh("cpu", (WORLD,))
    names = ("replicate", "shard")
    return init_device_mesh("cpu", (WORLD // LOCAL, LOCAL), mesh_dim_names=names)


def full(model: torch.nn.Module) -> torch.nn.Module:
    """A model with `samples`, and the whole parameters."""
    whole = [p.full_tensor().clone() for p in model.parameters()]
    plain = torch.nn.ParameterList(whole)
    plain.samples = []
    return plain


def main() -> None:
    work, steps = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(5)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    fully_shard(model, mesh=mesh())
    part = Part(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    place = work / "checkpoints" / "any"
    checkpoint = newest(place)
    if checkpoint is not None:
        dcp.load({"part": part}, checkpoint_id=checkpoint)
    note_begin(work, full(model), part.step)
    while part.step < steps:
        time.sleep(0.02)
        x = torch.randn(12, 8, generator=torch.Generator().manual_seed(part.step))
        part.optimizer.zero_grad()
        (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
        part.optimizer.step()
        part.step += 1
        note_step(work, full(model), part.step)
        coming = notice() if IS_WARNED else None
        if coming or part.step % 10 == 0:
            save(part, place)
        if coming:
            coming.ready()


if __name__ == "__main__":
    main()
