"""Preparations for frameworks, without any of them."""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import types
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.elastic.frameworks import entry, lightning_world
from slurm_hooks.elastic.frameworks.whole import instead_of, is_whole, newest_whole, step_of
from slurm_hooks.elastic.mailbox import Mailbox, MailboxReader

from . import stand_ins
from .stand_ins import Standing, stand_in

__all__ = ["stand_in"]


def test_frameworks_are_unchanged_outside_of_malleable_jobs() -> None:
    assert not entry.is_worker({})
    assert not entry.is_worker({"TORCHELASTIC_RUN_ID": "1"})
    job = {"MALLEABLE_JOB_ID": "1", "TORCHELASTIC_RUN_ID": "1"}
    assert entry.is_worker(job)
    assert not entry.is_worker({**job, entry.SWITCH: "0"})
    assert entry.is_wanted({"MALLEABLE_JOB_ID": "1"})  # a warm worker
    assert entry.lightning_callbacks() == entry.pytorch_lightning_callbacks() == []


def test_entry_points_name_existing_functions(job_path: Path) -> None:
    (info,) = job_path.glob("*.dist-info")
    points = PathDistribution(info).entry_points
    assert {point.group for point in points} == {
        "torchrun.handlers",
        "torch.backends",
        "lightning.pytorch.callbacks_factory",
        "pytorch_lightning.callbacks_factory",
    }
    assert all(callable(point.load()) for point in points)


def test_ranks_are_passed_to_libraries_imported_before(monkeypatch: pytest.MonkeyPatch) -> None:
    library = types.ModuleType("lightning_utilities.core.rank_zero")
    library.rank_zero_only = types.SimpleNamespace(rank=0)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    entry.tell_ranks({"RANK": "3", "LOCAL_RANK": "1"})
    assert library.rank_zero_only.rank == 3
    entry.tell_ranks({"RANK": "odd"})
    assert library.rank_zero_only.rank == 3


def test_an_unsupported_version_is_named_by_rank_0_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = types.ModuleType("made_up_framework")
    library.__version__ = "6.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    monkeypatch.delenv("RANK", raising=False)
    for rank, lines in (("1", 0), ("0", 1)):  # a warm worker learns its rank after its imports
        entry._get_ready("lightning_world", "no_such_thing", library)
        entry.tell_ranks({})
        assert capsys.readouterr().err == ""
        entry.tell_ranks({"RANK": rank})
        said = capsys.readouterr().err
        assert said.count("made_up_framework 6.0 is not supported (AttributeError") == lines


@pytest.mark.torch
def test_a_trainer_that_saves_is_waited_for_and_still_loses_steps_at_a_planned_change(
    monkeypatch: pytest.MonkeyPatch, stand_in: Standing
) -> None:
    """A sharded state is not watched, so the steps since its last checkpoint are
    repeated.
    """
    pytest.importorskip("torch")
    from slurm_hooks.elastic.frameworks import trainer as module  # noqa: PLC0415

    mailbox, seen = Mailbox(), []
    for name, value in mailbox.environment().items():
        monkeypatch.setenv(name, value)

    class Trainer(stand_ins.Trainer):
        def train(self, resume_from_checkpoint: object = None) -> str:
            self._save_checkpoint()
            return "trained"

        def _save_checkpoint(self) -> None:
            seen.append((mailbox.is_awaited(), mailbox.is_listened_to()))

    module.get_ready(stand_in("transformers.trainer", Trainer=Trainer, TrainerCallback=object))
    Trainer().train()
    assert seen == [(True, False)]
    assert (mailbox.is_awaited(), mailbox.is_listened_to()) == (False, False)
    MailboxReader(os.environ).listen()  # the script calls notice() too
    Trainer().train()
    assert seen[1:] == [(True, True)]
    assert (mailbox.is_awaited(), mailbox.is_listened_to()) == (True, True)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ({"num_nodes": 4, "strategy": "auto"}, {"num_nodes": 1, "strategy": "ddp"}),
        ({"num_nodes": 1, "strategy": "auto"}, {"num_nodes": 1, "strategy": "auto"}),
        ({"num_nodes": 4, "strategy": "fsdp"}, {"num_nodes": 1, "strategy": "fsdp"}),
    ],
)
def test_the_round_has_the_number_of_nodes(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, object], used: dict[str, object]
) -> None:
    class Connector:
        def __init__(self, **named: object) -> None:
            self.named = named

        def _check_device_config_and_set_final_flags(self, num_nodes: int) -> None:
            self._num_nodes_flag = num_nodes

    lightning_world._replace_nodes(Connector)
    assert Connector(**asked).named == asked
    monkeypatch.setattr(
        os,
        "environ",
        {"MALLEABLE_JOB_ID": "1", "TORCHELASTIC_RUN_ID": "1", "GROUP_WORLD_SIZE": "1"}
        | {"LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "2"},
    )
    assert Connector(**asked).named == used


@pytest.mark.parametrize("here", [1, 3])
def test_unequal_nodes_times_processes_are_the_world(here: int) -> None:
    """Lightning checks its number of nodes, and divides the samples."""
    env = {"GROUP_WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": str(here), "WORLD_SIZE": "4"}
    nodes = lightning_world.nodes_of(env)
    assert isinstance(nodes, int)
    assert (nodes, nodes * here, here * nodes, nodes * 5) == (2, 4, 4, 10)
    assert type(lightning_world.nodes_of(env | {"WORLD_SIZE": str(2 * here)})) is int


def checkpoint(directory: Path, step: int) -> Path:
    """A checkpoint as transformers writes it."""
    place = directory / f"checkpoint-{step}"
    place.mkdir()
    header = json.dumps({"w": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]}}).encode()
    text = struct.pack("<Q", len(header)) + header + b"12345"
    (place / "model.safetensors").write_bytes(text)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data", "1" * 100)
    (place / "optimizer.pt").write_bytes(archive.getvalue())
    (place / "trainer_state.json").write_text(json.dumps({"global_step": step}))
    return place


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "trainer_state.json"])
@pytest.mark.parametrize("keep", [0, 1, 10, -1])
def test_a_torn_checkpoint_is_skipped(tmp_path: Path, name: str, keep: int) -> None:
    older, newer = checkpoint(tmp_path, 5), checkpoint(tmp_path, 10)
    assert newest_whole(tmp_path) == instead_of(newer) == newer
    assert step_of(newer) == 10
    file = newer / name
    file.write_bytes(file.read_bytes()[:keep])
    assert not is_whole(newer)
    assert newest_whole(tmp_path) == instead_of(newer) == older


def test_a_begun_checkpoint_and_a_checkpoint_with_missing_parts(tmp_path: Path) -> None:
    place = checkpoint(tmp_path, 5)
    index = {"weight_map": {"w": "model.safetensors", "v": "model-2.safetensors"}}
    (place / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not is_whole(place)
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-x").mkdir()
    assert newest_whole(tmp_path) is None
    assert newest_whole(tmp_path / "absent") is None
    assert instead_of(tmp_path / "named-by-user") == tmp_path / "named-by-user"


@pytest.mark.torch
def test_the_state_of_another_model_is_recognized() -> None:
    torch = pytest.importorskip("torch")
    from slurm_hooks.elastic.frameworks.step_memory import is_alike  # noqa: PLC0415

    model = torch.nn.Linear(2, 3)
    kept = model.state_dict()
    wrapped = {f"module._orig_mod.{name}": value for name, value in kept.items()}
    assert is_alike(kept, model)
    assert is_alike(wrapped, model)
    assert is_alike(kept, torch.nn.LazyLinear(3))
    assert not is_alike(kept, torch.nn.Linear(2, 4))
    assert not is_alike(kept, torch.nn.Linear(2, 3, bias=False))
    assert is_alike(kept, torch.nn.Linear(2, 3, bias=False), is_strict=False)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:This process")
def test_the_first_process_searches_checkpoints_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stand_in: Standing
) -> None:
    """There may be many checkpoints, each of many files, and many processes."""
    pytest.importorskip("torch")
    from slurm_hooks.elastic.frameworks import trainer  # noqa: PLC0415

    from .test_peers import Group  # noqa: PLC0415

    places = [checkpoint(tmp_path, step) for step in (5, 10)]
    monkeypatch.setenv("MALLEABLE_JOB_ID", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")

    class Trainer(stand_ins.Trainer):
        """A trainer of a sharded state."""

        is_fsdp_enabled, is_deepspeed_enabled = True, False
        args = types.SimpleNamespace(output_dir=str(tmp_path))

        def __init__(self) -> None:
            pass

        def train(self, resume_from_checkpoint: object = None) -> Any:
            return resume_from_checkpoint

    callback = type("Callback", (), {})
    module = stand_in("transformers.trainer", Trainer=Trainer, TrainerCallback=callback)

    def body(rank: int, _: object) -> None:
        trainer.get_ready(module)
        if rank:
            trainer.newest_whole = None  # type: ignore[assignment]
        for asked in (True, str(places[1])):
            assert Trainer().train(asked) == str(places[1])
        assert Trainer().train() is None

    Group(tmp_path, [0, 1]).run(body)
