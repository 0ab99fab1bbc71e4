"""Checkpoints in the memory of a node: their contents, their writers, and their second writing."""

from __future__ import annotations

import gc
import os
import resource
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic.mailbox import Mailbox, open_files  # noqa: E402
from slurm_hooks.elastic.script import node_memory  # noqa: E402
from slurm_hooks.elastic.script.memory_room import room  # noqa: E402
from slurm_hooks.elastic.script.node_memory import NodeMemory, packed  # noqa: E402
from slurm_hooks.elastic.script.packed import LARGE, PAGE, Packing  # noqa: E402

pytestmark = [pytest.mark.torch]
WORDS = LARGE // 4  # a float32 tensor of so many numbers is a large tensor


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """The child of a fork has only this thread."""
    torch.set_num_threads(1)


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    mailbox = Mailbox()
    yield mailbox.environment()
    del mailbox


def full(value: float) -> Any:
    return torch.full((WORDS,), float(value))


def kept(memory: NodeMemory, step: int) -> dict[str, Any]:
    image = memory.read(step)
    assert image is not None
    return image.content()


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(type(a) is type(b) and a == b)


def test_the_newest_whole_copy_is_kept(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    assert memory.newest() == -1
    for step in (3, 5, 9):
        assert memory.write(step, {"x": full(step), "n": step})
    again = NodeMemory(env)
    assert again.newest() == 9
    assert kept(again, 9)["n"] == 9
    assert torch.equal(kept(again, 9)["x"], full(9))
    assert torch.equal(kept(again, 5)["x"], full(5))
    assert again.read(3) is None


def test_the_same_step_saved_again_counts(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"n": 1})
    memory.write(1, {"n": 2})
    memory.write(1, {"n": 3})
    assert kept(memory, 1) == {"n": 3}


@pytest.mark.parametrize("where", ["", "x", "1", "0:0", "999999999:3"])
def test_without_an_agent_no_state_is_kept(where: str) -> None:
    memory = NodeMemory({"MALLEABLE_SLOTS": where})
    assert not memory.is_there
    assert memory.write(1, {"x": 1}) is None
    assert memory.newest() == -1
    assert memory.read(-1) is None


CONTENT = {
    "plain": [None, True, False, 1, -(1 << 70), 0.1, -0.0, float("inf"), "text \ud800 \0", ()],
    "nested": {"a": {"b": [{"c": (1, [2])}]}, 3: "int", (1, "x"): "tuple", None: 0, True: 1.0},
    "tensors": [torch.arange(7, dtype=torch.int64), torch.tensor(3.5), torch.empty(0, 4)],
    "kinds": [
        torch.ones(3, dtype=kind)
        for kind in (torch.bool, torch.uint8, torch.bfloat16, torch.complex64, torch.float8_e5m2)
    ],
    "strange": [torch.ones(4, 6).t()[1:], torch.randn(3, dtype=torch.complex64).conj()],
    "rare": [Counter({10: 2}), torch.float16, torch.Size([1, 2]), {1, 2}],
    "large": torch.randn(3, WORDS),
}


def test_all_objects_of_a_file_come_back(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, CONTENT)
    content = kept(memory, 1)
    rare = [list(part.pop("rare")) for part in (content, dict(CONTENT))]
    kinds = [
        [tensor.view(torch.uint8) for tensor in part.pop("kinds") if not tensor.is_complex()]
        for part in (content, dict(CONTENT))
    ]
    assert rare[0] == rare[1]
    assert same(*kinds)
    assert same(content, {k: v for k, v in CONTENT.items() if k not in ("rare", "kinds")})
    assert same(packed(1, CONTENT).content()["large"], CONTENT["large"])


def test_a_modules_state_comes_back_with_its_versions(env: dict[str, str]) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    memory = NodeMemory(env)
    memory.write(1, {"net": net.state_dict()})
    state = kept(memory, 1)["net"]
    assert type(state) is OrderedDict
    assert state._metadata == net.state_dict()._metadata
    net.load_state_dict(state)


def test_tied_weights_are_kept_once() -> None:
    weight = torch.nn.Parameter(full(1))
    packing = Packing({"a": weight, "b": weight, "c": weight.detach()})
    assert packing.shape.total < 2 * LARGE
    assert Packing({"a": weight, "b": full(1)}).shape.total > 2 * LARGE


class Own:
    pass


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"model": {"w": Own()}}, r"content\['model'\]\['w'\]: Own cannot be kept"),
        ({"f": [lambda: 1]}, r"content\['f'\]\[0\]: function cannot be kept"),
        ({"m": torch.empty(2, device="meta")}, r"content\['m'\]: cannot be copied"),
    ],
)
def test_an_object_that_cannot_be_kept_is_named(
    env: dict[str, str], content: Any, says: str
) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"n": 1})
    memory.write(2, {"n": 2})
    with pytest.raises(TypeError, match=says):
        memory.write(3, content)
    assert kept(memory, 2) == {"n": 2}
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(TypeError, match="contains itself"):
        memory.write(4, endless)
    assert memory.write(5, {"n": 5})


def test_a_process_killed_while_writing_leaves_the_other_copy(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"x": full(1)})
    memory.write(2, {"x": full(2)})
    child = os.fork()
    if child == 0:
        with memory.draft() as draft:
            draft.fill(3, {"x": full(3)})
            os._exit(0)  # all is written but the word that makes it count
    os.waitpid(child, 0)
    again = NodeMemory(env)
    assert again.newest() == 2
    assert torch.equal(kept(again, 2)["x"], full(2))
    assert again.read(1) is None
    assert (again.take_cut_off(), again.take_cut_off()) == (3, -1)
    assert again.newest() == 2


def test_a_draft_that_is_given_up_does_not_count(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"x": 1})
    with memory.draft() as draft:
        draft.fill(2, {"x": 2})
    assert memory.newest() == 1
    assert memory.take_cut_off() == -1
    assert memory.write(3, {"x": 3})


def test_damage_and_other_versions_are_an_empty_slot(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    first, second = open_files(env["MALLEABLE_SLOTS"])
    os.pwrite(first, b"mallmem1" + b"\1" * 5000, 0)
    assert memory.newest() == -1
    memory.write(1, {"x": full(1)})
    memory.write(2, {"x": full(2)})
    slots = [handle for handle in (first, second) if os.pread(handle, 8, 0) == b"mallmem2"]
    assert len(slots) == 2
    for handle in slots:
        os.pwrite(handle, b"X", PAGE + 20)  # within the skeleton
    assert NodeMemory(env).read(2) is None
    os.truncate(second, 100)
    os.truncate(first, 100)
    assert NodeMemory(env).newest() == -1


@pytest.mark.parametrize("has_populate", [True, False])
def test_read_state_survives_a_write_to_its_place(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, has_populate: bool
) -> None:
    if not has_populate:  # a kernel that does not know it
        monkeypatch.setattr("slurm_hooks.elastic.script.image.POPULATE_WRITE", 9999)
        monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.POPULATE_WRITE", 9999)
    memory = NodeMemory(env)
    memory.write(1, {"x": full(1), "n": torch.ones(3)})
    content = kept(memory, 1)
    content["x"][0] = 7  # as an optimizer would: it goes on with the tensors it is given
    assert kept(memory, 1)["x"][0] == 1
    for step in (2, 3, 4):
        memory.write(step, {"x": full(step), "n": torch.zeros(3)})
    assert content["x"][0] == 7
    assert torch.equal(content["x"][1:], full(1)[1:])
    assert torch.equal(content["n"], torch.ones(3))
    memory.write(5, content)  # the live object lies where it once was kept
    memory.write(6, content)
    assert torch.equal(kept(memory, 6)["x"], content["x"])


def test_unused_memory_is_freed(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"model": full(1), "optimizer": full(2)})
    content = kept(memory, 1)
    model = content["model"]
    del content
    gc.collect()
    slot = next(slot for slot in memory._slots if slot.step() == 1)
    assert len([ref for ref in slot.views._ranges if ref() is not None]) == 1
    memory.write(2, {})
    memory.write(3, {"model": full(9)})
    assert torch.equal(model, full(1))


def test_a_child_sees_the_read_state(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"x": full(1)})
    content = kept(memory, 1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)
        os._exit(0 if float(content["x"].sum()) == WORDS else 1)
    memory.write(2, {"x": full(2)})
    memory.write(3, {"x": full(3)})
    os.write(write, b"x")
    assert os.waitpid(child, 0)[1] == 0


def test_pages_are_used_again(env: dict[str, str]) -> None:
    memory = NodeMemory(env)
    for step in range(4):
        memory.write(step, {"x": full(step)})
    blocks = [os.fstat(handle).st_blocks for handle in open_files(env["MALLEABLE_SLOTS"])]
    memory.write(9, {"x": full(1)[: WORDS // 2]})
    memory.write(10, {"x": full(1)[: WORDS // 2], "n": 1})
    assert blocks == [os.fstat(handle).st_blocks for handle in open_files(env["MALLEABLE_SLOTS"])]
    assert torch.equal(kept(memory, 10)["x"], full(1)[: WORDS // 2])


def test_prepared_memory_needs_no_more_and_keeps_the_present_copy(
    env: dict[str, str],
) -> None:
    memory, content = NodeMemory(env), {"x": torch.ones(8, WORDS)}
    memory.write(1, {"n": 1})
    size = Packing(content).shape.total
    memory.make_ready(size)
    handles = open_files(env["MALLEABLE_SLOTS"])
    ready = [os.fstat(handle).st_blocks * 512 for handle in handles]
    assert all(size <= there < 1.1 * size for there in ready)
    assert kept(memory, 1) == {"n": 1}
    for step in (2, 3):
        assert memory.write(step, content)
    assert ready == [os.fstat(handle).st_blocks * 512 for handle in handles]


def test_memory_that_the_training_may_need_is_not_prepared(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_memory, "room", lambda: 15 << 20)
    NodeMemory(env).make_ready(8 << 20)
    assert not any(os.fstat(handle).st_size for handle in open_files(env["MALLEABLE_SLOTS"]))


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("why", ["limit of the kernel", "little memory"])
def test_no_room_leaves_both_copies(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    memory = NodeMemory(env)
    memory.write(1, {"n": 1})
    memory.write(2, {"n": 2})
    if why == "little memory":
        monkeypatch.setattr(node_memory, "room", lambda: LARGE)
        assert memory.write(3, {"x": torch.ones(2, WORDS)}) is None
        with pytest.raises(OSError, match="are not free"):
            packed(3, {"x": torch.ones(2, WORDS)})
    else:
        with largest_file(LARGE):
            assert memory.write(3, {"x": full(3)}) is None
    assert (kept(memory, 1), kept(memory, 2)) == ({"n": 1}, {"n": 2})
    assert memory.write(4, {"n": 4})


def test_the_tightest_limit_decides_the_room(tmp_path: Path) -> None:
    gib = 1 << 30
    assert room() > 0
    assert room(tmp_path, tmp_path) > gib  # no limit can be seen
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable: 8388608 kB\n")
    assert room(tmp_path, tmp_path) == 8 * gib - (64 << 20)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:cpu,memory:/old/step\n0::/job/step\n")
    step, old = tmp_path / "job" / "step", tmp_path / "memory" / "old" / "step"
    for group in (step, old):
        group.mkdir(parents=True)
    (step / "memory.max").write_text("max\n")
    (step.parent / "memory.max").write_text(f"{4 * gib}\n")
    (step.parent / "memory.current").write_text(f"{3 * gib}\n")
    (step.parent / "memory.stat").write_text(f"anon 5\ninactive_file {gib}\n")
    assert room(tmp_path, tmp_path) == 2 * gib - (64 << 20)
    (old / "memory.limit_in_bytes").write_text(f"{gib}")
    (old / "memory.usage_in_bytes").write_text(f"{2 * gib}")
    assert room(tmp_path, tmp_path) == 0


def test_a_copy_that_a_training_begins_with_leaves_room_for_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mailbox = Mailbox()
    memory = NodeMemory(mailbox.environment())
    content = {"w": torch.ones(8 << 20)}  # 32 MiB
    monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.room", lambda: 48 << 20)
    assert memory.adopt(1, content) is None
    with memory.draft() as draft:
        assert draft.allocate(1, Packing(content).shape) is None
    assert memory.newest() == -1
    assert memory.write(2, content) is not None  # all that the training needs is there
    assert memory.newest() == 2
    monkeypatch.setattr("slurm_hooks.elastic.script.node_memory.room", lambda: 80 << 20)
    assert memory.adopt(3, content) is not None
