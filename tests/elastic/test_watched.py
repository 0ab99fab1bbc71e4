"""Watched objects: their kept state is the last step boundary, for any writer."""

from __future__ import annotations

import copy
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from slurm_hooks.elastic.mailbox import Mailbox, open_files  # noqa: E402
from slurm_hooks.elastic.script import device_events  # noqa: E402
from slurm_hooks.elastic.script.boundary import Boundary  # noqa: E402
from slurm_hooks.elastic.script.checkpoint import Checkpoint  # noqa: E402
from slurm_hooks.elastic.script.just_in_time import JustInTime  # noqa: E402
from slurm_hooks.elastic.script.node_memory import NodeMemory  # noqa: E402
from slurm_hooks.elastic.script.readiness import SAMPLE, Readiness  # noqa: E402
from slurm_hooks.elastic.script.watched import Watched, is_sharded  # noqa: E402
from waiting import wait_until  # noqa: E402

pytestmark = [pytest.mark.torch]


def net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))


class Counter:
    """The smallest object that can be watched."""

    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = dict(state)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return bool(torch.equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def agent(mailbox: Mailbox) -> dict[str, str]:
    return mailbox.environment()


@pytest.fixture
def here(agent: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Make this process a worker of the agent."""
    for name, value in agent.items():
        monkeypatch.setenv(name, value)
    return agent


class Training:
    """A single process: live objects, and their state at the last boundary as the test has it."""

    def __init__(self, env: dict[str, str]) -> None:
        self.net, self.counter = net(), Counter(n=0, deep={"list": [1]})
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.1)
        self.things = {"net": self.net, "optimizer": self.optimizer, "counter": self.counter}
        self.memory = NodeMemory(env)
        self.jit = JustInTime(Watched(None, self.things), self.memory)

    def forward(self) -> None:
        """The part of a step that can be interrupted without a torn state."""
        self.counter.state["n"] += 1
        self.counter.state["deep"]["list"].append(2)
        self.optimizer.zero_grad()
        self.net(torch.randn(5, 3)).square().sum().backward()

    def change(self) -> None:
        self.jit.begin_change()
        self.optimizer.step()
        self.optimizer.param_groups[0]["lr"] *= 0.5

    def now(self) -> dict[str, Any]:
        return copy.deepcopy({name: thing.state_dict() for name, thing in self.things.items()})

    def kept(self) -> dict[str, Any]:
        image = self.memory.read(self.memory.newest())
        assert image is not None
        return image.content()


def test_the_kept_state_is_the_last_boundary_to_the_bit(agent: dict[str, str]) -> None:
    training = Training(agent)
    for step in (1, 2, 3):
        training.forward()
        training.change()
        at_boundary = training.now()
        training.jit.reached(step)
    training.forward()  # buffers, gradients and the counter have moved on
    training.optimizer.param_groups[0]["lr"] = 99.0  # for the next step, before it
    assert not equal(training.now(), at_boundary)
    training.jit.keep()
    assert training.memory.newest() == 3
    assert equal(training.kept(), at_boundary)


def when_ready(readiness: Readiness) -> bool:
    """The clock stands still during this call."""
    readiness._thread.join()
    return True


class Clock:
    """Stands still unless the training takes time."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds


def two_optimizers(checkpoint: Checkpoint, model: Any, clock: Clock, waits: bool) -> None:
    """A training with a backward pass between them, or a single pass before both."""
    first, second = (torch.optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    checkpoint.watch(model=model, first=first, second=second)
    for step in range(1, 7):
        clock.spend(1.0)
        model(torch.ones(5, 3)).sum().backward()
        first.step()
        clock.spend(0.5 * waits)
        second.step()
        checkpoint.reached(step)


def metric(checkpoint: Checkpoint, model: Any, clock: Clock, waits: bool) -> None:
    """Sum a metric over all processes before the boundary, or after it."""
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint.watch(model=model, optimizer=optimizer)
    for step in range(1, 7):
        clock.spend(1.0)
        model(torch.ones(5, 3)).sum().backward()
        optimizer.step()
        clock.spend(0.5 * waits)
        checkpoint.reached(step)
        clock.spend(0.5 * (not waits))


def closure(checkpoint: Checkpoint, model: Any, clock: Clock, waits: bool) -> None:
    """Call a closure several times within a step, or once before any change."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    if waits:
        optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=5, tolerance_change=0)
    checkpoint.watch(model=model, optimizer=optimizer)

    def compute() -> Any:
        clock.spend(1.0)
        optimizer.zero_grad()
        loss = model(torch.ones(5, 3)).square().sum()
        loss.backward()
        return loss

    for step in range(1, 7):
        optimizer.step(compute)
        checkpoint.reached(step)


@pytest.mark.parametrize("train", [two_optimizers, metric, closure])
@pytest.mark.parametrize("waits", [False, True])
def test_a_state_that_is_torn_while_others_are_waited_for_is_copied(
    agent: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    train: Any,
    waits: bool,
) -> None:
    clock = Clock()
    monkeypatch.setattr("slurm_hooks.elastic.script.just_in_time.time", clock)
    monkeypatch.setattr(Readiness, "is_done", property(when_ready))
    for name, value in agent.items():
        monkeypatch.setenv(name, value)
    checkpoint = Checkpoint(None)
    try:
        train(checkpoint, torch.nn.Linear(3, 4), clock, waits)
    finally:
        checkpoint.end()
    err = capfd.readouterr().err
    assert checkpoint._memory.newest() == (6 if waits else -1)
    assert err.count("so it is also copied to memory about every 1 s") == int(waits)


class Slow(torch.nn.Module):
    """A state that is large enough to be measured, and slow to copy."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(SAMPLE // 4 + 1))


@pytest.mark.parametrize(("farewell_s", "lines"), [(0.0, 1), (60.0, 0)])
def test_memory_for_a_copy_exists_before_the_interruption_and_its_time_is_reported(
    here: dict[str, str],
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    farewell_s: float,
    lines: int,
) -> None:
    monkeypatch.setenv("MALLEABLE_FAREWELL_S", str(farewell_s))
    checkpoint = Checkpoint(None)
    try:
        checkpoint.watch(model=Slow())
        for step in (1, 2):
            checkpoint.reached(step)
        wait_until(lambda: mailbox.writing_s() > 0)
    finally:
        checkpoint.end()
    handles = open_files(here["MALLEABLE_SLOTS"])
    assert all(os.fstat(handle).st_blocks * 512 >= SAMPLE for handle in handles)
    assert checkpoint._memory.newest() == -1  # no copy was made
    err = capfd.readouterr().err
    assert err.count("a copy of this state (0.1 GiB) takes about 0 s, but a fragment") == lines


class Counting(torch.nn.Module):
    """Has all state of a module other than parameters. Each value is 1 after the first pass."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.register_buffer("early", torch.zeros(1))
        self.register_buffer("late", None)
        self.passes = 0

    def get_extra_state(self) -> Any:
        return torch.tensor([self.passes])

    def set_extra_state(self, state: Any) -> None:
        self.passes = int(state)

    def forward(self, x: torch.Tensor) -> Any:
        self.early = self.early + 1
        self.late = torch.ones(1) if self.late is None else self.late + 1
        self.passes += 1
        return self.inner(x)


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_all_changes_of_a_pass_in_a_module_belong_to_the_boundary(passes: int) -> None:
    module = Counting()
    watched = Watched(None, {"module": module})
    spare = watched.copy({})
    for _ in range(passes):
        module(torch.ones(2))
    copied = watched.copy(spare)
    wanted = {key: value.clone() for key, value in module.state_dict().items()}
    module(torch.ones(2))
    content = watched.content(copied)["module"]
    assert content.keys() == wanted.keys()
    assert all(torch.equal(content[key], value) for key, value in wanted.items())


def test_a_step_under_way_is_waited_for(agent: dict[str, str]) -> None:
    training = Training(agent)
    training.change()
    training.jit.reached(1)
    training.change()
    keeping = threading.Thread(target=training.jit.keep)
    keeping.start()
    keeping.join(0.3)
    assert keeping.is_alive()
    assert training.memory.newest() == -1
    training.jit.reached(2)
    keeping.join(5)
    assert training.memory.newest() == 2


def test_a_torn_state_is_never_kept(
    agent: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("slurm_hooks.elastic.script.just_in_time.TORN_S", 0.1)
    training = Training(agent)
    training.jit.reached(1)
    training.change()
    keeping = threading.Thread(target=training.jit.keep)
    keeping.start()
    keeping.join(5)
    training.jit.keep()  # an error within optimizer.step(): no need to wait for oneself
    assert training.memory.newest() == -1
    line = "the step after 1 was interrupted: an optimizer had changed the weights"
    assert capfd.readouterr().err.count(line) == 1


def test_once_kept_the_training_cannot_leave_the_boundary(agent: dict[str, str]) -> None:
    training = Training(agent)
    training.jit.reached(1)
    training.jit.keep()
    going_on = threading.Thread(target=training.change, daemon=True)
    going_on.start()
    going_on.join(0.2)
    assert going_on.is_alive()
    training.jit._let_go()  # a handler of the script's own
    going_on.join(5)
    training.jit.reached(2)
    training.jit.keep()
    assert training.memory.newest() == 2


def test_optimizers_in_several_threads_do_not_wait_for_each_other(agent: dict[str, str]) -> None:
    boundary = Boundary(Watched(None, {"net": net()}))
    for step in range(20):
        threads = [threading.Thread(target=boundary.begin_change) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
            assert not thread.is_alive()
        boundary.reach(step)
    assert boundary.freeze(0)


class Device:
    """A stand-in for the events of a device that works behind the script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = self.come_to = 0
        monkeypatch.setattr(device_events, "record", self.event)
        monkeypatch.setattr("slurm_hooks.elastic.script.boundary.DEVICE_S", 0.05)

    def event(self) -> Any:
        self.asked += 1
        device, mine = self, self.asked

        class Event:
            def query(self) -> bool:
                return mine <= device.come_to

        return Event()


def test_a_device_that_hangs_leaves_the_last_boundary_that_it_has_reached(
    agent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    training = Training(agent)
    training.jit.reached(1)  # event 1
    for step in (2, 3):
        training.counter.state["n"] = step
        training.jit.begin_change()  # events 2 and 4
        training.jit.reached(step)  # events 3 and 5
    device.come_to = 1  # it hangs before it changes anything: the host is two steps ahead
    training.jit.keep()
    assert training.memory.newest() == 1
    assert training.kept()["counter"]["n"] == 0


def test_changes_of_a_device_during_the_copy_are_not_kept(
    agent: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(monkeypatch)
    training = Training(agent)
    training.jit.reached(1)
    training.jit.begin_change()
    training.jit.reached(2)
    device.come_to = 2  # within the change
    training.jit.keep()
    assert training.memory.newest() == -1


def test_weights_that_change_without_an_optimizer_are_not_kept(
    agent: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(agent)
    training.forward()
    training.change()
    training.jit.reached(1)
    with torch.no_grad():
        training.net[0].weight.add_(1.0)  # an average that is swapped in for an evaluation
    training.jit.keep()
    assert training.memory.newest() == -1
    err = capfd.readouterr().err
    assert err.count("step 1 is not kept: its weights were changed in place") == 1


def test_where_weights_change_behind_a_boundary_boundaries_are_copied(
    agent: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr("slurm_hooks.elastic.script.just_in_time.time", clock)
    monkeypatch.setattr(Readiness, "is_done", property(when_ready))
    training = Training(agent)
    for step in range(1, 9):
        clock.spend(1.0)
        training.forward()
        training.change()
        at_boundary = training.now()
        training.jit.reached(step)
        with torch.no_grad():
            training.net[0].weight.add_(1.0)
    assert training.memory.newest() == 8
    assert equal(training.kept(), at_boundary)
    assert capfd.readouterr().err.count("so it is also copied to memory about every 1 s") == 1


def test_a_change_in_place_within_a_step_is_no_surprise(agent: dict[str, str]) -> None:
    training = Training(agent)
    for step in (1, 2, 3):
        training.forward()
        training.change()
        with torch.no_grad():
            training.net[0].weight.clamp_(-1, 1)
        training.jit.reached(step)
    assert not training.jit._boundary.has_moved
    training.jit.keep()
    assert training.memory.newest() == 3


class Accelerator:
    """A stand-in for torch's view of a device. It may or may not record events."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: str, can_record: bool = True) -> None:
        self.is_at_work, self.can_record, self.recorded = True, can_record, 0
        device_events._kind.cache_clear()
        device_events._has_events.cache_clear()
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
        monkeypatch.setattr(torch, "Event", self.event)
        module = SimpleNamespace(is_initialized=lambda: self.is_at_work)
        monkeypatch.setattr(torch, "get_device_module", lambda kind: module)

    def event(self, kind: str) -> Any:
        def record() -> None:
            if not self.can_record:
                raise RuntimeError(f"{kind} backend doesn't support events.")
            self.recorded += 1

        return SimpleNamespace(record=record, query=lambda: True, synchronize=lambda: None)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Accelerator]]:
    yield partial(Accelerator, monkeypatch)
    device_events._kind.cache_clear()
    device_events._has_events.cache_clear()


def test_events_are_of_the_accelerator_that_is_at_work(
    accelerator: Callable[..., Accelerator],
) -> None:
    device = accelerator("xpu")
    assert device_events.record().query()
    device.is_at_work = False
    assert device_events.record() is None
    assert device.recorded == 1


@pytest.mark.parametrize(("kind", "can_record"), [("xpu", True), ("meta", False)])
def test_a_device_with_unknown_boundaries_is_not_watched(
    here: dict[str, str],
    mailbox: Mailbox,
    accelerator: Callable[..., Accelerator],
    capfd: pytest.CaptureFixture[str],
    kind: str,
    can_record: bool,
) -> None:
    accelerator(kind, can_record).is_at_work = False
    model = torch.nn.Linear(2, 2, device="meta")  # a device that has no events
    jit = JustInTime(Watched(None, {"model": model}), NodeMemory(here))
    for step in (1, 2):
        jit.reached(step)
    said = "step 1 cannot be kept: content['model']['weight'] is on meta, and torch has no events"
    assert capfd.readouterr().err.count(said) == 1
    assert not mailbox.is_watched()


def test_a_device_that_has_events_is_watched(accelerator: Callable[..., Accelerator]) -> None:
    accelerator("meta")
    device_events.check_devices({"w": [torch.empty(2, device="meta"), torch.zeros(2)]})


def test_a_step_that_becomes_a_graph_is_not_watched(
    here: dict[str, str],
    mailbox: Mailbox,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    training = Training(here)
    training.jit.reached(1)
    assert mailbox.is_watched()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    training.change()
    training.jit.reached(2)
    training.jit.keep()
    assert not mailbox.is_watched()
    assert training.memory.newest() == -1
    assert capfd.readouterr().err.count("the step becomes a CUDA graph") == 1


def test_a_spare_copy_is_used_again(agent: dict[str, str]) -> None:
    training = Training(agent)
    seen = set()
    for step in range(10):
        training.forward()
        training.jit.reached(step)
        mark = training.jit._boundary._marks[-1]
        first = next(iter(mark.copied["net"].buffers.values()))
        seen.add(first.data_ptr())
    assert len(seen) <= 2


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (object(), "object has no state_dict"),
        (Counter(path=Path("x")), "the state of it is not plain data"),
        (Counter(lock=threading.Lock()), "the state of it cannot be copied"),
    ],
)
def test_an_object_that_cannot_be_kept_is_refused_at_once(thing: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Watched(None, {"it": thing})
    with pytest.raises(TypeError, match="either a function or named objects"):
        Watched(None, {})


def test_an_object_that_can_no_longer_be_kept_is_a_line_and_training_goes_on(
    agent: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(agent)
    training.jit.reached(1)
    training.counter.state["lock"] = threading.Lock()
    for step in (2, 3):
        training.forward()
        training.change()
        training.jit.reached(step)
    training.jit.keep()
    assert training.memory.newest() == -1
    assert capfd.readouterr().err.count("step 2 cannot be kept") == 1


def test_full_memory_is_a_line_and_leaves_the_older_copy(
    agent: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    training = Training(agent)
    training.memory.write(1, {"older": 1})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        training.jit.reached(2)  # from here on memory for a copy is got in the background
        training.jit.keep()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert training.memory.newest() == 1
    image = training.memory.read(1)
    assert image is not None
    assert image.content() == {"older": 1}
    assert "step 2 does not fit into memory" in capfd.readouterr().err


def test_without_an_agent_watching_has_no_cost_or_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MALLEABLE_SLOTS", raising=False)
    before = signal.getsignal(signal.SIGTERM), threading.active_count(), sys.excepthook
    checkpoint = Checkpoint(tmp_path / "c.pt")
    counter = Counter(n=1)
    checkpoint.watch(counter=counter)
    checkpoint.changing()
    checkpoint.reached(4)
    assert (signal.getsignal(signal.SIGTERM), threading.active_count(), sys.excepthook) == before
    assert checkpoint.resume() == 0
    checkpoint.save(4)
    counter.state = {"n": 9}
    assert Checkpoint(tmp_path / "c.pt").load() == (4, {"counter": {"n": 1}})
    assert checkpoint.resume() == 4
    assert counter.state == {"n": 1}


def test_a_checkpoint_of_other_objects_is_not_loaded_in_part(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "c.pt").save(4, {"layers": {}})
    checkpoint = Checkpoint(tmp_path / "c.pt")
    checkpoint.watch(net=net())
    with pytest.raises(ValueError, match="holds layers, but not net"):
        checkpoint.resume()


def test_resume_without_objects_is_refused_before_there_is_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "c.pt")
    with pytest.raises(TypeError, match="name them in watch"):
        checkpoint.resume()
    checkpoint.watch(lambda: {"n": 1})
    with pytest.raises(TypeError, match=r"call load\(\)"):
        checkpoint.resume()


def test_a_wrapper_that_holds_a_part_is_sharded() -> None:
    FullyShardedDataParallel = type("FullyShardedDataParallel", (torch.nn.Linear,), {})
    assert is_sharded(torch.nn.Sequential(FullyShardedDataParallel(1, 1)))
    assert not is_sharded(net())
    assert not is_sharded(torch.optim.SGD(net().parameters(), lr=1.0))


def test_a_sharded_state_is_a_line_and_needs_its_own_checkpoints(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

    dist.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = torch.nn.Linear(3, 4)
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        checkpoint = Checkpoint(tmp_path / "c.pt")
        checkpoint.watch(model=model)
    finally:
        dist.destroy_process_group()
    assert "model is sharded: a lost node takes its part" in capfd.readouterr().err
    checkpoint.reached(1)
    with pytest.raises(TypeError, match=r"save\(\) needs content="):
        checkpoint.save(1)


# Torch is imported once. Each line on stdin is the pid of a process to wait for, or the source
# of another process: a child that runs it as its main program.
PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from torch.utils.data import DataLoader
from slurm_hooks.elastic import Checkpoint
from slurm_hooks.elastic.script import just_in_time, last_signal
while True:
    order = json.loads(sys.stdin.readline() or os._exit(0))
    if isinstance(order, int):
        print(os.waitpid(order, 0)[1], flush=True)
    elif child := os.fork():
        print(child, flush=True)
    else:
        break
work, kind = Path(order["work"]), order["kind"]
os.environ.update(order["env"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
said = os.open(work / "said", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
for handle in (1, 2): os.dup2(said, handle)
def content():
    time.sleep(float(os.environ.get("SLOW_S", "0")))
    return {"n": n}
n = 0
def handler(*_):
    with open(work / "handled", "a") as file: file.write(str(checkpoint._memory.newest()))
    if kind == "exits": sys.exit(3)
    if kind == "catches":
        last_signal.STAY_S = 0.5
        raise KeyboardInterrupt
if kind in ("exits", "returns", "catches"): signal.signal(signal.SIGTERM, handler)
if kind == "ignores": signal.signal(signal.SIGTERM, signal.SIG_IGN)
checkpoint = Checkpoint(work / "c.pt")
checkpoint.watch(content)
n = 7
checkpoint.reached(7)
if kind == "late": signal.signal(signal.SIGTERM, handler); checkpoint.reached(7)
if kind == "defers": signal.signal(signal.SIGTERM, handler)  # while it writes a file, say
if kind == "chains":
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *words: (handler(), before(*words)))
    checkpoint.reached(7)
if kind == "forks":
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    print(os.waitpid(child, 0)[1], flush=True)
    time.sleep(0.3)
if kind == "raises": raise RuntimeError("of the script")
if kind in ("fails", "succeeds"): sys.exit(int(kind == "fails"))  # it has caught its errors itself
if kind == "torn":
    just_in_time.TORN_S = 900.0  # longer than the test may take
    checkpoint.changing()
if kind in ("loads", "draws"):
    os.setsid()
    loader = iter(DataLoader(range(1 << 30), num_workers=2))
    next(loader)
    loader._timeout = 1  # it looks after its workers this often
    checkpoint.reached(7)
    (work / "workers").write_text(" ".join(str(w.pid) for w in loader._workers))
if kind == "loads":
    last_signal.GROUP_S = 60.0  # the test kills the workers first, on a host that may be slow
    checkpoint.changing()
    (work / "ready").touch()
    until = time.monotonic() + 1.0  # an optimizer at work
    while time.monotonic() < until: pass
    n = 8
    checkpoint.reached(8)
if kind == "draws":
    (work / "ready").touch()
    for _ in loader: pass
(work / "ready").touch()
if kind == "hangs":
    import ctypes
    ctypes.CDLL(None).pause()  # in C, and any signal returns from it
    ctypes.CDLL(None).sleep(30)
while True:
    try: time.sleep(0.1)
    except KeyboardInterrupt: pass
"""


class Parent:
    """The parent of all processes that watch."""

    def __init__(self) -> None:
        self.left: set[int] = set()
        self._popen = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, order: object) -> int:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps(order) + "\n")
        self._popen.stdin.flush()
        return int(self._popen.stdout.readline())

    def stop(self) -> None:
        for pid in self.left:
            os.kill(pid, signal.SIGKILL)
        self._popen.communicate(timeout=150)


@pytest.fixture(scope="module")
def parent() -> Iterator[Parent]:
    parent = Parent()
    yield parent
    parent.stop()


class Process:
    """A process that watches its state, under this test as its agent."""

    def __init__(self, parent: Parent, work: Path, kind: str, **env: str) -> None:
        self.mailbox, self.parent, self.work = Mailbox(), parent, work
        self.memory = NodeMemory(self.mailbox.environment())
        known = {**self.mailbox.environment(), **env}
        self.pid = parent.ask({"work": str(work), "kind": kind, "env": known})
        parent.left.add(self.pid)

    def ready(self) -> None:
        wait_until((self.work / "ready").exists)

    def term(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def is_alive(self) -> bool:
        return ") Z " not in Path(f"/proc/{self.pid}/stat").read_text()

    def end(self) -> tuple[int, str]:
        """The exit code and the output."""
        status = self.parent.ask(self.pid)
        self.parent.left.remove(self.pid)
        return os.waitstatus_to_exitcode(status), (self.work / "said").read_text()


Begin = Callable[..., Process]


@pytest.fixture
def begin(parent: Parent, tmp_path: Path) -> Begin:
    return partial(Process, parent, tmp_path)


@pytest.mark.parametrize("kind", ["plain", "ignores", "hangs"])
def test_sigterm_keeps_and_ends_by_sigterm(begin: Begin, kind: str) -> None:
    process = begin(kind)
    process.ready()
    process.term()
    assert process.end()[0] == -signal.SIGTERM
    assert process.memory.newest() == 7


@pytest.mark.parametrize("kind", ["exits", "late", "returns", "chains"])
def test_a_handler_of_the_scripts_own_is_called_when_all_is_kept(begin: Begin, kind: str) -> None:
    process = begin(kind)
    handled = process.work / "handled"
    process.ready()
    process.term()
    if kind == "exits":
        assert process.end()[0] == 3
    else:
        wait_until(lambda: handled.exists() and handled.read_text())
        assert process.is_alive()  # its own choice
    assert handled.read_text() == "7"


@pytest.mark.parametrize("are_workers_first", [False, True])
def test_workers_of_a_loader_that_end_too_do_not_tear_the_step(
    begin: Begin, are_workers_first: bool
) -> None:
    process = begin("loads")
    process.ready()
    if are_workers_first:
        for pid in (process.work / "workers").read_text().split():
            os.kill(int(pid), signal.SIGTERM)
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGTERM)
    code, said = process.end()
    assert (code, "Traceback" in said) == (-signal.SIGTERM, False), said
    assert process.memory.newest() == 8


def test_a_loader_that_loses_its_workers_to_sigterm_prints_no_traceback(begin: Begin) -> None:
    process = begin("draws", SLOW_S="2")
    process.ready()
    os.killpg(process.pid, signal.SIGTERM)
    _, said = process.end()
    assert "SIGTERM has ended the workers of a DataLoader" in said
    assert "Traceback" not in said
    assert process.memory.newest() == 7


def test_a_worker_of_a_loader_that_is_killed_is_an_error(begin: Begin) -> None:
    process = begin("draws")
    process.ready()
    os.kill(int((process.work / "workers").read_text().split()[0]), signal.SIGKILL)
    code, said = process.end()
    assert code == 1
    assert "Traceback" in said
    assert process.memory.newest() == 7


def test_a_script_that_catches_its_handler_s_exception_is_not_waited_for(begin: Begin) -> None:
    process = begin("catches")
    process.ready()
    process.term()
    assert process.end()[0] == -signal.SIGTERM
    assert (process.work / "handled").read_text() == "7"
    assert process.memory.newest() == 7


def test_a_handler_that_was_set_within_the_step_decides(begin: Begin) -> None:
    process = begin("defers")
    process.ready()
    process.term()
    wait_until(lambda: process.memory.newest() == 7)
    wait_until((process.work / "handled").exists)
    time.sleep(0.5)
    assert process.is_alive()


def test_after_a_second_sigterm_a_process_ends_with_the_farewell(begin: Begin) -> None:
    process = begin("torn", MALLEABLE_FAREWELL_S="0.8")
    process.ready()
    began = time.monotonic()
    process.term()
    time.sleep(0.1)
    process.term()
    assert process.end()[0] == -signal.SIGTERM
    assert time.monotonic() - began > 0.7
    assert process.memory.newest() == -1


def test_a_second_sigterm_does_not_prevent_the_write(begin: Begin) -> None:
    process = begin("plain", SLOW_S="0.3")
    process.ready()
    process.term()
    time.sleep(0.1)
    process.term()
    assert process.end()[0] == -signal.SIGTERM
    assert process.memory.newest() == 7


@pytest.mark.parametrize(("kind", "kept"), [("fails", 7), ("succeeds", -1)])
def test_an_exit_code_shows_whether_the_state_is_still_needed(
    begin: Begin, kind: str, kept: int
) -> None:
    process = begin(kind)
    code, out = process.end()
    assert (code, out) == (int(kind == "fails"), "")
    assert process.memory.newest() == kept


def test_an_error_of_the_script_keeps_too(begin: Begin) -> None:
    process = begin("raises")
    code, said = process.end()
    assert code == 1
    assert "RuntimeError: of the script" in said
    assert process.memory.newest() == 7


def test_the_end_of_a_child_is_not_its_parents(begin: Begin) -> None:
    process = begin("forks")
    process.ready()
    assert process.is_alive()
    assert process.memory.newest() == -1
    process.term()
    code, said = process.end()
    assert (code, said.strip()) == (-signal.SIGTERM, str(int(signal.SIGTERM)))
    assert process.memory.newest() == 7
