"""The script for FSDP2 of docs/users/sharded.md goes on at 4, 2 and 3 processes as printed."""

from __future__ import annotations

import json
import re
import signal
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elastic.gang import Gang
from slurm_hooks.protocol.jobpath import write_job_path
from waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "users" / "sharded.md"
# Notes each step, and digests of the whole state that is saved and loaded.
RUNNER = """
import hashlib, json, os, time
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as states
from torch.optim.optimizer import register_optimizer_step_post_hook
os.environ["TORCHDYNAMO_DISABLE"] = "1"
torch.set_num_threads(1)
plain_save, plain_load, plain_set = dcp.save, dcp.load, states.set_state_dict
place, done = "", 0

def note(what, model, optimizer, **more):
    hasher, moments = hashlib.sha256(), 0
    for name, value in [*model.items(), *sorted(optimizer["state"].items())]:
        parts = value.values() if isinstance(value, dict) else [value]
        for tensor in parts:
            tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
            hasher.update(name.encode() + tensor.numpy().tobytes())
            moments += float(tensor.abs().sum()) if isinstance(value, dict) else 0
    row = {"what": what, "digest": hasher.hexdigest(), "moments": moments, "t": time.time()}
    row |= {"world": dist.get_world_size(), **more}
    with open("notes", "a") as file:
        file.write(json.dumps(row) + chr(10))

def save(state, **named):
    note("save", state["model"], state["optimizer"], step=state["step"])
    plain_save(state, **named)

def load(state, checkpoint_id):
    global place
    place = checkpoint_id
    plain_load(state, checkpoint_id=checkpoint_id)

def set_state_dict(model, optimizer, **named):
    plain_set(model, optimizer, **named)
    step = int(place.rpartition("-")[2])
    note("load", *states.get_state_dict(model, optimizer), step=step)

def see(optimizer, *_):
    global done
    if not optimizer.param_groups[0]["lr"]:
        return  # get_state_dict() makes a step that changes nothing
    done += 1
    if dist.get_rank() == 0:
        with open("steps.log", "a") as file:
            file.write(f"{time.time():.3f} {done} {dist.get_world_size()}" + chr(10))
    time.sleep(0.02)

dcp.save, dcp.load, states.set_state_dict = save, load, set_state_dict
register_optimizer_step_post_hook(see)
exec(compile(open("train.py").read(), "train.py", "exec"))
"""


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[Gang]:
    gang = Gang(write_job_path(tmp_path / "jobpath"), tmp_path)
    yield gang
    gang.stop()


def script() -> str:
    """The page's script, with fewer steps between checkpoints."""
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", PAGE.read_text(), re.M)
    (page,) = (block for block in map(textwrap.dedent, blocks) if "fully_shard(model)" in block)
    assert '"run1", 500,' in page
    return page.replace('"run1", 500,', '"run1", 10,')


def notes(gang: Gang, what: str, since: float = 0.0) -> list[dict[str, Any]]:
    path = gang.work / "notes"
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else iter(())
    return [row for row in rows if row["what"] == what and row["t"] > since]


def has_saved(gang: Gang, since: float) -> bool:
    """Tell whether two checkpoints are complete: all processes begin with the third."""
    return len({row["step"] for row in notes(gang, "save", since)}) >= 3


@pytest.mark.torch
def test_the_script_goes_on_with_weights_and_moments_at_any_size(gang: Gang) -> None:
    (gang.work / "train.py").write_text(script())
    gang.script = gang.work / "runner.py"
    gang.script.write_text(RUNNER)
    changed_at = time.time()
    for fragment in (1, 2, 3, 4):
        gang.start(fragment, "2:4", 0)
    gang.wait_world(4, changed_at)
    for world, change in ((2, "loss"), (3, "growth")):
        wait_until(partial(has_saved, gang, changed_at), explain=gang.dump)
        changed_at = time.time()
        if change == "loss":
            for fragment in (3, 4):
                gang.cut_off(fragment, signal.SIGKILL)
        else:
            gang.start(5, "2:4", 0)
        gang.wait_world(world, changed_at)
        loaded = [row for row in notes(gang, "load", changed_at) if row["world"] == world]
        assert len(loaded) == world
        saved = [row for row in notes(gang, "save") if row["step"] == loaded[0]["step"]]
        assert {row["digest"] for row in loaded} == {row["digest"] for row in saved}
        assert loaded[0]["moments"] > 0
        names = {path.name for path in (gang.work / "run1").iterdir()}
        assert len(names - {"new"}) <= 3
