"""A state is kept for all processes only if all of them hold it: real process groups."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch._dynamo")  # state_dict() of an optimizer would, in each process
import torch.distributed as dist  # noqa: E402
from torch.distributed.distributed_c10d import _get_default_store  # noqa: E402

from slurm_hooks.elastic import Checkpoint  # noqa: E402
from slurm_hooks.elastic.script import replicas  # noqa: E402
from slurm_hooks.elastic.script.packed import LARGE  # noqa: E402

from .test_peers import Group  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:This process")]
INSTEAD = "use torch.distributed.checkpoint"


class Net(torch.nn.Module):
    """Weights of this value, and a buffer of this process alone."""

    def __init__(self, weight: float, rank: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        torch.nn.init.constant_(self.layer.weight, weight)
        torch.nn.init.zeros_(self.layer.bias)
        self.register_buffer("statistics", torch.full((LARGE // 4,), float(rank)))


def trained(net: Net, gradient: float) -> torch.optim.Optimizer:
    """An optimizer as after a step."""
    optimizer = torch.optim.AdamW(net.parameters())
    for parameter in net.parameters():
        moment = torch.full_like(parameter, gradient)
        optimizer.state[parameter] = {"step": torch.tensor(1.0), "exp_avg": moment}
    return optimizer


def net_and_optimizer(rank: int, weight: float = 1.0, gradient: float = 1.0) -> dict[str, Any]:
    net = Net(weight, rank)
    return {"model": net, "optimizer": trained(net, gradient)}


Make = Callable[[int], dict[str, Any]]
EQUAL: list[Make] = [
    net_and_optimizer,
    lambda rank: net_and_optimizer(rank, 1.0 + 1e-5 * rank, 1.0 - 1e-5 * rank),  # by rounding
]
UNLIKE: list[tuple[Make, str]] = [
    (lambda rank: net_and_optimizer(rank, 1.0 + rank), r"\['model'\]\['layer.weight'\]"),
    (lambda rank: net_and_optimizer(rank, gradient=1.0 + rank), r"'exp_avg'\]"),
    (lambda rank: {"model": torch.nn.Linear(4, 4 + rank)}, "has other tensors in another process"),
]


def test_replicas_are_kept(tmp_path: Path) -> None:
    def body(rank: int, checkpoint: Checkpoint) -> None:
        for step, make in enumerate(EQUAL, 1):
            objects = make(rank)
            checkpoint = Checkpoint(tmp_path / "checkpoint.pt")
            checkpoint.watch(**objects)
            checkpoint.reached(3 * step)
            checkpoint.save(3 * step + 1)
            content = {"optimizer": objects["optimizer"].state_dict(), "rank": rank}
            checkpoint.save(3 * step + 2, content)
            checkpoint.wait()
            dist.barrier()
            assert checkpoint.load()[0] == 3 * step + 2
            checkpoint.end()

    Group(tmp_path, [0, 1, 1]).run(body)


def test_unlike_states_are_refused_in_all_processes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def body(rank: int, checkpoint: Checkpoint) -> None:
        for make, says in UNLIKE:
            objects = make(rank)
            content = {name: thing.state_dict() for name, thing in objects.items()}
            content["model"].pop("statistics", None)
            with pytest.raises(TypeError, match=f"{says}.*{INSTEAD}"):
                Checkpoint(tmp_path / "c.pt").save(1, content)
            checkpoint = Checkpoint(tmp_path / "c.pt")
            checkpoint.watch(**objects)
            for step in (1, 2):
                checkpoint.reached(step)
            assert checkpoint._just_in_time is None
            with pytest.raises(TypeError, match=f"{says}.*{INSTEAD}"):
                checkpoint.save(2)
            assert checkpoint.load() == (0, {})
            checkpoint.end()

    Group(tmp_path, [0, 1, 1]).run(body)
    said = capfd.readouterr().err
    assert said.count("training resumes from the last checkpoint that you write") == len(UNLIKE)


def test_large_tensors_without_a_name_of_their_own_are_compared(tmp_path: Path) -> None:
    def body(rank: int, checkpoint: Checkpoint) -> None:
        with pytest.raises(TypeError, match=r"content\['x'\]\[0\] differs between the processes"):
            checkpoint.save(1, {"x": [torch.full((LARGE // 4,), float(rank))]})

    Group(tmp_path, [0, 1]).run(body)


def test_a_process_without_a_state_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    def body(rank: int, checkpoint: Checkpoint) -> None:
        def content() -> dict[str, Any]:
            if rank:
                raise KeyError("no state here")
            return {"x": torch.ones(LARGE)}

        checkpoint.watch(content)
        checkpoint.reached(1)
        assert checkpoint._just_in_time is None

    Group(tmp_path, [0, 1]).run(body)


def test_a_process_that_saves_alone_is_an_error_and_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "PATIENCE_S", 0.2)

    def body(rank: int, checkpoint: Checkpoint) -> None:
        if rank == 0:
            _get_default_store().set_timeout(timedelta(seconds=0.5))
            with pytest.raises(RuntimeError):
                checkpoint.save(1, {"x": 1})
            _get_default_store().set_timeout(timedelta(seconds=100))
        dist.barrier()  # the other's collectives are undisturbed

    Group(tmp_path, [0, 1]).run(body)
    assert "1 of 2 processes have called reached() or save()" in capfd.readouterr().err


@pytest.mark.parametrize("how", ["save", "watch"])
def test_a_part_of_a_sharded_tensor_is_never_kept(
    tmp_path: Path, how: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415  (takes a second)

    def body(rank: int, checkpoint: Checkpoint) -> None:
        model = torch.nn.Linear(8, 8)
        mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
        fully_shard(model, mesh=mesh)
        if how == "watch":
            checkpoint.watch(lambda: {"model": model.state_dict()})
            checkpoint.reached(1)
        else:
            with pytest.raises(TypeError, match=rf"\['model'\]\['weight'\] is sharded.*{INSTEAD}"):
                checkpoint.save(1, {"model": model.state_dict()})
        assert checkpoint.load() == (0, {})

    Group(tmp_path, [0, 1]).run(body)
    assert capfd.readouterr().err.count(INSTEAD) == (how == "watch")


def test_a_part_is_refused_in_a_process_alone_too(tmp_path: Path) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor  # noqa: PLC0415

    def body(rank: int, checkpoint: Checkpoint) -> None:
        mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
        part = distribute_tensor(torch.ones(4), mesh, [Shard(0)])
        with pytest.raises(TypeError, match=rf"content\['x'\] is sharded.*{INSTEAD}"):
            checkpoint.save(1, {"x": part})

    Group(tmp_path, [0]).run(body)
