"""Checkpoints that survive a change of size: a file, and a copy in the memory of each node.

The file is written whole or not at all. The copies are for survivors: they are read without
the file system, and since they cost no disk they can be taken often. All processes resume
from the same step, the newest that anybody has. What is read is data, never code.

A script that names its live objects (`watch`) and its step boundaries (`reached`) need not take
copies: the last boundary is written to memory when a process is about to end.
"""

from __future__ import annotations

import io
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook

from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script import observation
from slurm_hooks.elastic.script.just_in_time import JustInTime
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.step_boundary import device
from slurm_hooks.elastic.script.watched import Watched


class Checkpoint:
    """`path` is on a file system that all nodes share. To be used by all processes. Of several in
    a script, the first that is used has the memory of the node; the others are files alone."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._is_first_here = os.environ.get("LOCAL_RANK", "0") == "0"
        self._rank = dist.get_rank() if dist.is_initialized() else 0
        self._world = dist.get_world_size() if dist.is_initialized() else 1
        self._watched: Watched | None = None
        self._just_in_time: JustInTime | None = None

    @cached_property
    def _memory(self) -> NodeMemory:
        path = os.path.abspath(str(self._path))
        if MailboxReader(os.environ).claim_memory(path):
            return NodeMemory(os.environ)
        if self._is_first_here:
            say(f"{path} is a file alone: the memory of the node has another checkpoint")
        return NodeMemory({})

    def watch(self, content: Callable[[], dict[str, Any]] | None = None, /, **objects: Any) -> None:
        """Name what a checkpoint consists of: live objects with state_dict() and
        load_state_dict(), or a function that returns the content. From then on the state at
        the last `reached` survives the end of any process but this one without having
        been copied before. Call it once, in the main thread. Raises TypeError for what
        cannot be kept."""
        if self._watched is not None:
            raise TypeError("watch() was called before; name all objects in one call")
        self._watched = Watched(content, objects)
        if self._watched.sharded:
            say(
                f"{self._watched.sharded} is sharded: a lost node takes its part of the state "
                "along, so the last checkpoint that you write counts"
            )
        elif self._is_first_here and self._memory.is_there:
            self._just_in_time = JustInTime(self._watched, self._memory, _packed)
            self._just_in_time.listen()
            MailboxReader(os.environ).write_file(os.path.abspath(self._path))
            register_optimizer_step_pre_hook(self._on_optimizer_step)

    def changing(self) -> None:
        """The state changes from now on, until `reached`. Optimizers of torch say so
        themselves; needed only where a script changes what it watches in another way."""
        if self._just_in_time is not None:
            self._just_in_time.begin_change()

    def reached(self, step: int) -> None:
        """`step` steps are done, and nothing changes what is watched until the optimizer's part
        of the next one. Costs a lock and a copy of what is neither parameter nor the state of
        an optimizer."""
        if self._just_in_time is not None:
            self._just_in_time.reached(step)

    def resume(self) -> int:
        """Put the watched objects into the state of the newest checkpoint and return its
        step; 0, and nothing is changed, if there is none. Raises as `load`, ValueError if an
        object is missing there, and TypeError at once if no objects are watched."""
        if self._watched is None or not self._watched.has_objects:
            raise TypeError(
                "resume() loads into watched objects: name them in watch() first; what a "
                "function gives comes back by load()"
            )
        step, content = self.load()
        if content:
            self._watched.load(content)
        return step

    def save(self, step: int, content: dict[str, Any] | None = None, to_file: bool = True) -> None:
        """Keep `content` (tensors, numbers, texts, lists, dictionaries; the same in all
        processes; by default what is watched) as reached after `step` steps; `to_file=False`:
        in memory only. Raises OSError if the file cannot be written."""
        if not self._is_first_here:
            return
        began = time.monotonic()
        data = _packed(step, self._live() if content is None else content)
        self._memory.write(step, data)
        if to_file and self._rank == 0:
            self._write(data)
        observation.see_saved(began)

    def _live(self) -> dict[str, Any]:
        if self._watched is None or self._watched.sharded:
            raise TypeError("save() needs the content where no unsharded objects are watched")
        return self._watched.content(self._watched.copy({}))

    def _on_optimizer_step(self, *_: object) -> None:
        self.changing()

    def load(self) -> tuple[int, dict[str, Any]]:
        """The newest step and its content, the same in all processes; (0, {}) if there
        is none. Raises what torch.load raises on a damaged file."""
        mine = self._memory.newest()
        data = self._memory.read(mine) if mine >= 0 else None
        on_disk = self._step_on_disk() if self._rank == 0 else -1
        check = zlib.crc32(data) if data is not None else 0
        held = self._exchange(mine if data is not None else -1, on_disk, check)
        best_held, best_file = max(have for have, _, _ in held), held[0][1]
        if max(best_held, best_file) < 0:
            return 0, {}
        if best_held >= best_file:
            source = next(rank for rank, (have, _, _) in enumerate(held) if have == best_held)
            is_everywhere = all((have, sum_) == (best_held, held[0][2]) for have, _, sum_ in held)
            data = data if is_everywhere else self._share(data, source)
        else:
            data = self._share(self._path.read_bytes() if self._rank == 0 else None, 0)
        found = torch.load(io.BytesIO(data or b""), map_location="cpu", weights_only=True)
        return int(found["step"]), found["content"]

    def _write(self, data: bytes) -> None:
        draft = self._path.with_name(f"{self._path.name}.new")
        with open(draft, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self._path)

    def _step_on_disk(self) -> int:
        with suppress(FileNotFoundError):
            found = torch.load(self._path, map_location="cpu", weights_only=True, mmap=True)
            return int(found["step"])
        return -1

    def _exchange(self, held: int, on_disk: int, check: int) -> list[tuple[int, int, int]]:
        if self._world == 1:
            return [(held, on_disk, check)]
        mine = torch.tensor([held, on_disk, check], dtype=torch.int64, device=device())
        all_ = [torch.empty_like(mine) for _ in range(self._world)]
        dist.all_gather(all_, mine)
        return [(int(one[0]), int(one[1]), int(one[2])) for one in all_]

    def _share(self, data: bytes | None, source: int) -> bytes:
        if self._world == 1:
            return data or b""
        is_source = self._rank == source
        size = torch.tensor([len(data or b"") if is_source else 0], device=device())
        dist.broadcast(size, source)
        if is_source:
            block = torch.frombuffer(bytearray(data or b""), dtype=torch.uint8).to(device())
        else:
            block = torch.empty(int(size), dtype=torch.uint8, device=device())
        dist.broadcast(block, source)
        return block.cpu().numpy().tobytes()


def _packed(step: int, content: dict[str, Any]) -> bytes:
    text = io.BytesIO()
    torch.save({"step": step, "content": content}, text)
    return text.getvalue()
