"""Give all processes the same checkpoint: processes that have it send it to the others.

All agree on the newest step. Its small parts come from one process, so that all get the same. Its
large tensors lie in the memory of each node that has trained, and stay there. A node without them
gets them from all nodes that have them, a part from each. Then it gives too. The other processes of
a node read them from its memory.
"""

from __future__ import annotations

import os
import socket
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from slurm_hooks.elastic.mailbox import SLOTS, seat
from slurm_hooks.elastic.script.group_backend import device
from slurm_hooks.elastic.script.image import Image, own
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.packed import PAGE, Shape

VERSION = 3  # of the exchange between processes: raise it with every change
PIECE = 16 << 20  # bytes sent at a time from each to each
_DIGEST_PIECE = 64 << 20
_NONE = Shape(0, 0, 0, 0)


@dataclass(frozen=True)
class _Process:
    """The facts that all know of each process. `node` is the same for processes that share an
    agent's memory.
    """

    rank: int
    node: int
    seat: int
    shape: Shape

    @property
    def has_it(self) -> bool:
        return self.shape != _NONE


class Peers:
    """The processes of the default process group. Raises RuntimeError if there is none yet."""

    def __init__(self, env: Mapping[str, str], memory: NodeMemory) -> None:
        world = env.get("WORLD_SIZE", "1") or "1"
        if world != "1" and not dist.is_initialized():
            raise RuntimeError(
                f"this is one of {world} processes, but it has not joined the others, so it cannot "
                "save or load a state with them: call dist.init_process_group() first"
            )
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1
        self.has_other_nodes = int(env.get("GROUP_WORLD_SIZE", "1") or 1) > 1
        self._memory = memory
        self._seat = seat(env) if memory.is_there else 0
        self._node = _node(env) if memory.is_there else -1 - self.rank

    def newest(self, held: int, on_disk: int) -> tuple[int, int]:
        """Return the newest step in any process's memory, and the step of rank 0's file. Raises
        RuntimeError if the processes are of versions that cannot exchange more than this.
        """
        rows = self._gather([VERSION, held, on_disk])
        if any(row[0] != VERSION for row in rows):
            raise RuntimeError(
                "fragments of this job that started before an upgrade of the site cannot exchange "
                "their state with later fragments; cancel the job and submit it again"
            )
        return max(row[1] for row in rows), rows[0][2]

    def share(self, step: int, image: Image | None) -> dict[str, Any]:
        """Return the content at this step, the same in all processes.

        To be called by all. `image` is `None` in processes without it. At least one process has it.
        """
        processes = self._introduce(image)
        source = min((p for p in _leaders(processes) if p.has_it), key=lambda p: p.rank)
        common = self._broadcast(source, image)
        holders, others = self._divide(processes, source, image)
        if self.rank in others:
            image = self._receive(step, source.shape, common, (holders, others))
        else:
            self._give(image, holders, others)
        if len(_leaders(processes)) < self.world:
            image = self._read_from_node(step, source.shape, holders + others, image)
        assert image is not None
        content = image.content_with(source.shape, common)
        self._settle(is_alone=len(_leaders(processes)) == self.world)
        return content

    def _introduce(self, image: Image | None) -> list[_Process]:
        shape = image.shape if image else _NONE
        sizes = [shape.skeleton, shape.common, shape.total, shape.layout]
        rows = self._gather([self._node, self._seat, *sizes])
        return [_Process(n, row[0], row[1], Shape(*row[2:])) for n, row in enumerate(rows)]

    def _broadcast(self, source: _Process, image: Image | None) -> bytearray:
        common = bytearray(source.shape.common)
        if self.rank == source.rank:
            assert image is not None
            common = image.common()
        there = _bytes(common)
        moved = there.to(device())
        dist.broadcast(moved, source.rank)
        if moved is not there:
            there.copy_(moved)
        return common

    def _divide(
        self, processes: Sequence[_Process], source: _Process, image: Image | None
    ) -> tuple[list[int], list[int]]:
        """Return the ranks that have the large tensors of the source, and the ranks that get
        them.
        """
        leaders = _leaders(processes)
        like = [p.rank for p in leaders if p.has_it and p.shape.layout == source.shape.layout]
        if 1 < len(like) < len(leaders):  # parts of different states must not be mixed
            mine = _digest(image) if image and self.rank in like else 0
            digests = [row[0] for row in self._gather([mine])]
            like = [rank for rank in like if digests[rank] == digests[source.rank]]
        return like, [p.rank for p in leaders if p.rank not in like]

    def _receive(
        self, step: int, shape: Shape, common: bytearray, ranks: tuple[list[int], list[int]]
    ) -> Image:
        self._memory.forget(range(step, step + 1))  # a copy that differs from the others'
        with self._memory.draft() as draft:
            whole = draft.allocate(step, shape)
            image = own(step, shape) if whole is None else Image(step, shape, whole, _no_view)
            image.whole[PAGE : PAGE + shape.common] = bytes(common)
            self._give(image, *ranks)
            return image if whole is None else draft.commit()

    def _give(self, image: Image | None, holders: Sequence[int], others: Sequence[int]) -> None:
        """Send in waves: a process that has received sends to the next. Other processes take no
        part.
        """
        giving, waiting = list(holders), list(others)
        while waiting and image is not None:
            taking, waiting = waiting[: len(giving)], waiting[len(giving) :]
            if self.rank in giving or self.rank in taking:
                self._wave(_bytes(image.large()), giving, taking)
            giving += taking

    def _wave(self, large: torch.Tensor, giving: Sequence[int], taking: Sequence[int]) -> None:
        bounds = [len(large) * n // len(giving) for n in range(len(giving) + 1)]
        parts = {rank: large[bounds[n] : bounds[n + 1]] for n, rank in enumerate(giving)}
        for at in range(0, max(map(len, parts.values())), PIECE):
            pieces = {rank: part[at : at + PIECE] for rank, part in parts.items()}
            if self.rank in giving:
                self._send(pieces[self.rank], taking)
            else:
                self._take(pieces)

    def _send(self, piece: torch.Tensor, taking: Sequence[int]) -> None:
        there = piece.to(device())
        _exchange([dist.P2POp(dist.isend, there, rank) for rank in taking if len(piece)])

    def _take(self, pieces: Mapping[int, torch.Tensor]) -> None:
        wanted = {rank: piece for rank, piece in pieces.items() if len(piece)}
        there = {rank: _landing(piece) for rank, piece in wanted.items()}
        _exchange([dist.P2POp(dist.irecv, there[rank], rank) for rank in wanted])
        for rank, piece in wanted.items():
            if there[rank] is not piece:
                piece.copy_(there[rank])

    def _read_from_node(
        self, step: int, shape: Shape, leaders: Sequence[int], image: Image | None
    ) -> Image:
        """Read the tensors that the leader of this node has got. If it had no room, each process
        gets them.
        """
        dist.all_reduce(torch.zeros(1, device=device()))  # leaders have written
        if self.rank not in leaders:
            image = self._memory.read(step)
            image = image if image and image.shape.layout == shape.layout else None
        without = [n for n, row in enumerate(self._gather([int(image is None)])) if row[0]]
        if image is None:
            image = own(step, shape)
        self._give(image, leaders, without)
        return image

    def _settle(self, is_alone: bool) -> None:
        """Keep the content that was read from a node's memory unchanged when its leader writes
        again.
        """
        if is_alone:
            return
        if self._seat:
            self._memory.detach()
        dist.all_reduce(torch.zeros(1, device=device()))

    def _gather(self, numbers: list[int]) -> list[list[int]]:
        if self.world == 1:
            return [numbers]
        mine = torch.tensor(numbers, dtype=torch.int64, device=device())
        all_ = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(all_, mine)
        return [row.tolist() for row in all_]


def _node(env: Mapping[str, str]) -> int:
    names = socket.gethostname(), env.get("GROUP_RANK", ""), env.get(SLOTS, "")
    text = "\0".join(names).encode()
    return zlib.crc32(text) << 30 | zlib.adler32(text) >> 2


def _leaders(processes: Sequence[_Process]) -> list[_Process]:
    """Return the first process of each node, which writes to its memory."""
    first: dict[int, _Process] = {}
    for process in sorted(processes, key=lambda p: (p.seat, p.rank)):
        first.setdefault(process.node, process)
    return sorted(first.values(), key=lambda p: p.rank)


def _bytes(buffer: Any) -> torch.Tensor:
    if not len(buffer):
        return torch.empty(0, dtype=torch.uint8)
    return torch.frombuffer(buffer, dtype=torch.uint8)


def _landing(piece: torch.Tensor) -> torch.Tensor:
    where = device()
    return piece if where.type == "cpu" else torch.empty_like(piece, device=where)


def _exchange(moves: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(moves) if moves else ():
        work.wait()
    if moves and device().type != "cpu":
        torch.accelerator.current_stream(device()).synchronize()


def _digest(image: Image) -> int:
    """Return a digest of the bytes of all large tensors."""
    large = image.large()
    pieces = [large[at : at + _DIGEST_PIECE] for at in range(0, len(large), _DIGEST_PIECE)]
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # crc32 lets others run
        sums = list(pool.map(zlib.crc32, pieces))
    return zlib.crc32(repr(sums).encode())


def _no_view(start: int, size: int) -> Any:
    raise ValueError("an image cannot be read before it is whole")
