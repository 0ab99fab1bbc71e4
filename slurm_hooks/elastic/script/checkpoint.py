"""Checkpoints that survive a change of size: a file, and a copy in the memory of each node.

The file is written whole or not at all. The copies are for survivors: they are read without
the file system, and since they cost no disk they can be taken often. All processes resume
from the same step, the newest that anybody has. What is read is data, never code.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.step_boundary import device


class Checkpoint:
    """`path` is on a file system that all nodes share. To be used by all processes."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._memory = NodeMemory(os.environ)
        self._is_first_here = os.environ.get("LOCAL_RANK", "0") == "0"
        self._rank = dist.get_rank() if dist.is_initialized() else 0
        self._world = dist.get_world_size() if dist.is_initialized() else 1

    def save(self, step: int, content: dict[str, Any], to_file: bool = True) -> None:
        """Keep `content` (tensors, numbers, texts, lists, dictionaries; the same in all
        processes) as reached after `step` steps; `to_file=False`: in memory only. Raises
        OSError if the file cannot be written."""
        if not self._is_first_here:
            return
        text = io.BytesIO()
        torch.save({"step": step, "content": content}, text)
        self._memory.write(step, text.getvalue())
        if to_file and self._rank == 0:
            self._write(text.getvalue())

    def load(self) -> tuple[int, dict[str, Any]]:
        """The newest step and its content, the same in all processes; (0, {}) if there
        is none. Raises what torch.load raises on a damaged file."""
        mine = self._memory.newest()
        data = self._memory.read(mine) if mine >= 0 else None
        on_disk = self._step_on_disk() if self._rank == 0 else -1
        held = self._exchange(mine if data is not None else -1, on_disk)
        best_held, best_file = max(have for have, _ in held), held[0][1]
        if max(best_held, best_file) < 0:
            return 0, {}
        if best_held >= best_file:
            source = next(rank for rank, (have, _) in enumerate(held) if have == best_held)
            is_everywhere = all(have == best_held for have, _ in held)
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

    def _exchange(self, held: int, on_disk: int) -> list[tuple[int, int]]:
        if self._world == 1:
            return [(held, on_disk)]
        mine = torch.tensor([held, on_disk], dtype=torch.int64, device=device())
        all_ = [torch.empty_like(mine) for _ in range(self._world)]
        dist.all_gather(all_, mine)
        return [(int(pair[0]), int(pair[1])) for pair in all_]

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
