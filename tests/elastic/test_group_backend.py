"""The device of exchanged tensors, and whether a lost peer ends a process, by torch's backend.

It also holds for a script that names no backend.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from slurm_hooks.elastic.script.group_backend import (  # noqa: E402
    aborts,
    device,
    device_type,
    may_abort,
)
from slurm_hooks.elastic.script.step_boundary import notice  # noqa: E402

pytestmark = pytest.mark.torch


@contextmanager
def group(backend: str | None, place: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group(backend, f"file://{place}/store", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("config", "where", "may"),
    [
        ("cpu:gloo", "cpu", False),
        ("cpu:gloo,cuda:gloo", "cpu", False),
        ("cuda:nccl", "cuda", True),
        ("cpu:gloo,cuda:nccl", "cpu", True),
        ("cuda:nccl,cpu:gloo", "cpu", True),
        ("cpu:mpi,cuda:mpi", "cpu", False),
        ("cpu:ucc,cuda:ucc", "cpu", False),
        ("xpu:xccl", "xpu", True),
        ("hpu:hccl", "hpu", True),
        ("npu:hccl,xpu:xccl", "npu", True),
        ("cpu:", "cpu", False),
    ],
)
def test_the_meaning_of_a_configuration(config: str, where: str, may: bool) -> None:
    assert (device_type(config), aborts(config)) == (where, may)


@pytest.mark.parametrize(
    ("named", "where", "may"),
    [("nccl", "cuda", True), ("xccl", "xpu", True), ("gloo", "cpu", False)],
)
def test_a_name_means_the_same_as_in_torch(named: str, where: str, may: bool) -> None:
    config = str(dist.BackendConfig(dist.Backend(named)))
    assert (device_type(config), aborts(config)) == (where, may)


def test_a_group_without_the_cpu_exchanges_on_its_device(tmp_path: Path) -> None:
    with group("cuda:gloo", tmp_path):
        assert device() == torch.device("cuda")
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            dist.all_reduce(torch.zeros(1))


@pytest.mark.parametrize(
    ("backend", "where"), [("cuda:gloo", "cuda:3"), ("cpu:gloo,cuda:gloo", "cpu")]
)
def test_a_group_that_is_bound_to_a_device_exchanges_there(
    backend: str, where: str, tmp_path: Path
) -> None:
    """As with `device_id=cuda:3` and another current device."""
    with group(backend, tmp_path):
        assert dist.group.WORLD is not None
        dist.group.WORLD.bound_device_id = torch.device("cuda:3")
        assert device() == torch.device(where)


def test_a_group_that_no_backend_was_named_for_is_asked_on_the_cpu(tmp_path: Path) -> None:
    with group(None, tmp_path):
        assert dist.get_backend() == "undefined"
        assert device() == torch.device("cpu")
        assert not may_abort()
        assert notice() is None


def test_without_a_group_tensors_remain_local() -> None:
    assert device() == torch.device("cpu")
    assert not may_abort()
