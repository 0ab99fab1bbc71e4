"""Processes with the newest checkpoint send it to the others: real process groups, real memory."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

torch = pytest.importorskip("torch")
import torch.distributed as dist  # noqa: E402

from slurm_hooks.elastic import Checkpoint  # noqa: E402
from slurm_hooks.elastic.mailbox import Mailbox  # noqa: E402
from slurm_hooks.elastic.script import peers  # noqa: E402
from slurm_hooks.elastic.script.node_memory import NodeMemory  # noqa: E402
from slurm_hooks.elastic.script.packed import LARGE  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This process")]
WORDS = LARGE // 4
LIMIT_S = 100.0
Body = Callable[[int, Checkpoint], None]


def state(step: int, rank: int = 0) -> dict[str, Any]:
    """The state of processes after a step: own statistics, equal weights."""
    weights = torch.arange(5 * WORDS + 3, dtype=torch.float32) + step
    return {"weights": weights, "statistics": torch.full((3,), float(rank)), "late": [0.1] * rank}


class Group:
    """Processes of a process group on nodes of `nodes[rank]`."""

    def __init__(self, work: Path, nodes: list[int]) -> None:
        torch.set_num_threads(1)  # children of a fork have no others
        self.work, self.nodes = work, nodes
        self.mailboxes = {node: Mailbox() for node in nodes if node >= 0}
        self.children: list[int] = []

    def memory(self, node: int) -> NodeMemory:
        return NodeMemory(self.mailboxes[node].environment())

    def environment(self, rank: int) -> dict[str, str]:
        node = self.nodes[rank]
        local = str(self.nodes[:rank].count(node)) if node >= 0 else "0"
        slots = self.mailboxes[node].environment() if node >= 0 else {"MALLEABLE_SLOTS": ""}
        return {**slots, "LOCAL_RANK": local, "GROUP_RANK": str(node)}

    def start(self, body: Body) -> None:
        for rank in range(len(self.nodes)):
            env = self.environment(rank)
            child = os.fork()
            if child == 0:
                os._exit(self._run(rank, env, body))
            self.children.append(child)

    def _run(self, rank: int, env: dict[str, str], body: Body) -> int:
        try:
            os.environ.update(env)
            init = f"file://{self.work}/store"
            dist.init_process_group("gloo", init_method=init, rank=rank, world_size=len(self.nodes))
            body(rank, Checkpoint(self.work / "checkpoint.pt"))
            return 0
        except BaseException:
            (self.work / f"error-{rank}").write_text(traceback.format_exc())
            return 1

    def end(self) -> list[int]:
        deadline, codes = time.monotonic() + LIMIT_S, []
        for child in self.children:
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                time.sleep(0.02)
            codes.append(os.waitstatus_to_exitcode(ended[1]))
        self.children = []
        return codes

    def run(self, body: Body) -> None:
        self.start(body)
        codes = self.end()
        errors = "".join(path.read_text() for path in self.work.glob("error-*"))
        assert codes == [0] * len(self.nodes), errors


def expect(step: int, rank: int) -> Body:
    """Check that all have the state of that step, with their own rank's statistics."""

    def body(own: int, checkpoint: Checkpoint) -> None:
        last_step, content = checkpoint.load()
        assert last_step == step
        wanted = state(step, rank)
        assert torch.equal(content["weights"], wanted["weights"])
        assert torch.equal(content["statistics"], wanted["statistics"]), content
        assert content["late"] == wanted["late"]
        dist.barrier()

    return body


@pytest.mark.parametrize(
    ("nodes", "holders"),
    [
        ([0, 1, 2], [0, 1, 2]),  # all have it
        ([0, 1], [0]),
        ([0, 1, 2, 3], [1, 2, 3]),  # a newcomer, which is rank 0; statistics differ
        ([0, 1, 2, 3, 4], [4]),  # four newcomers from a single process, in waves
        ([0, 0, 1, 1], [1]),  # two processes on each node
        ([-1, -1, 0], [0]),  # without an agent
    ],
)
def test_all_resume_from_the_same_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[int], holders: list[int]
) -> None:
    monkeypatch.setattr(peers, "PIECE", 300_000)
    group = Group(tmp_path, nodes)
    for node in holders:
        group.memory(node).write(6, state(6, nodes.index(node)))
        group.memory(node).write(7, state(7, nodes.index(node)))
    group.run(expect(7, min(nodes.index(node) for node in holders)))
    for node in group.mailboxes:  # the newcomer has it too
        assert group.memory(node).newest() == 7


def test_processes_of_two_versions_do_not_wait_for_each_other_s_messages(
    tmp_path: Path,
) -> None:
    def body(own: int, checkpoint: Checkpoint) -> None:
        if own == 1:
            peers.VERSION += 1
        with pytest.raises(RuntimeError, match="started before an upgrade of the site"):
            checkpoint.load()
        dist.barrier()

    group = Group(tmp_path, [0, 1])
    group.memory(0).write(7, state(7))
    group.run(body)


def test_the_newest_step_wins(tmp_path: Path) -> None:
    group = Group(tmp_path, [0, 1, 2])
    for node, step in ((0, 7), (1, 8), (2, 6)):
        group.memory(node).write(step, state(step, node))
    group.run(expect(8, 1))


def test_a_newer_file_wins(tmp_path: Path) -> None:
    group = Group(tmp_path, [0, 1, 2])
    group.memory(1).write(7, state(7, 1))
    torch.save({"step": 9, "content": state(9, 4)}, tmp_path / "checkpoint.pt")
    group.run(expect(9, 4))
    assert group.memory(2).newest() == 9


def test_a_damaged_file_does_not_count(tmp_path: Path) -> None:
    """Its step is readable, but not its tensors. The others learn this before they wait for
    them.
    """
    group = Group(tmp_path, [0, 1])
    group.memory(1).write(7, state(7, 1))
    path = tmp_path / "checkpoint.pt"
    torch.save({"step": 9, "content": state(9)}, path)
    damage_a_tensor(path)
    group.run(expect(7, 1))
    assert not path.exists()


def damage_a_tensor(path: Path) -> None:
    with ZipFile(path) as archive:
        start = next(i for i in archive.infolist() if i.filename.endswith("data/0")).header_offset
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(bytes(30))


def test_parts_of_different_states_are_never_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path, [0, 1, 2, 3])
    for node, step in ((0, 7), (1, 8), (2, 7)):  # node 1 gives another state as step 7
        group.memory(node).write(7, state(step, node))
    group.run(expect(7, 0))
    image = group.memory(1).read(7)
    assert image is not None
    assert torch.equal(image.content()["weights"], state(7)["weights"])


def test_a_newcomer_without_room_resumes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path, [0, 1, 1])
    group.memory(0).write(7, state(7))

    def body(rank: int, checkpoint: Checkpoint) -> None:
        if rank == 1:
            monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.room", lambda: 0)
        expect(7, 0)(rank, checkpoint)

    group.run(body)
    assert group.memory(1).newest() == -1


def test_processes_of_a_node_keep_the_state_that_they_read(tmp_path: Path) -> None:
    group = Group(tmp_path, [0, 0])
    group.memory(0).write(7, state(7))

    def body(rank: int, checkpoint: Checkpoint) -> None:
        _, content = checkpoint.load()
        for step in (8, 9, 10):
            checkpoint.save(step, state(step), to_file=False)
        dist.barrier()
        assert torch.equal(content["weights"], state(7)["weights"])

    group.run(body)
    assert group.memory(0).newest() == 10


def test_the_death_of_a_newcomer_is_an_error_and_no_torn_state(tmp_path: Path) -> None:
    group = Group(tmp_path, [0, 1, 2])
    for node in (0, 1):
        group.memory(node).write(7, state(7))

    def body(rank: int, checkpoint: Checkpoint) -> None:
        if rank == 2:
            take = checkpoint._peers._take

            def die(pieces: Any) -> None:
                take(pieces)
                os._exit(9)

            checkpoint._peers._take = die
        checkpoint.load()
        dist.barrier()

    group.start(body)
    codes = group.end()
    assert codes == [1, 1, 9]
    assert group.memory(0).newest() == 7
    assert group.memory(2).newest() == -1
