"""A release of torch or of a framework with other private names stops no job."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_hooks.elastic import names
from slurm_hooks.elastic.frameworks import entry

from .gang import Gang
from .stand_ins import Standing, Trainer, stand_in

__all__ = ["stand_in"]
WORKER = {"MALLEABLE_JOB_ID": "1", "TORCHELASTIC_RUN_ID": "1", "RANK": "0"}


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WORKER.items():
        monkeypatch.setenv(name, value)


def without(kind: type, name: str) -> type:
    """The class of the next release, in which a method or attribute has another name."""
    if name not in vars(kind):  # its __init__ sets it
        return type(kind.__name__, (), {})
    content = {key: value for key, value in vars(kind).items() if key != name}
    return type(kind.__name__, (), {**content, f"{name}_": vars(kind)[name]})


@pytest.mark.torch
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("name", ["_load_scaler", "_load_from_checkpoint", "_save_checkpoint"])
def test_a_trainer_that_lacks_a_name_trains_as_without_us(
    stand_in: Standing, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    pytest.importorskip("torch")
    renamed: Any = without(Trainer, name)
    module = stand_in("transformers.trainer", Trainer=renamed, TrainerCallback=object)
    entry._get_ready("trainer", "get_ready", module)
    assert renamed.train is Trainer.train
    assert renamed().train() == "trained"
    assert capsys.readouterr().err == (
        f"malleable: transformers 6.0 is not supported (no Trainer.{name}): "
        "training resumes from its own checkpoints only\n"
    )


@pytest.mark.torch
@pytest.mark.usefixtures("worker")
def test_a_known_trainer_is_prepared(
    stand_in: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    known: Any = type("Trainer", (Trainer,), {})
    module = stand_in("transformers.trainer", Trainer=known, TrainerCallback=object)
    entry._get_ready("trainer", "get_ready", module)
    assert known.train is not Trainer.train
    assert capsys.readouterr().err == ""


def lightning(stand_in: Standing, package: str = "lightning.pytorch") -> SimpleNamespace:
    """The parts of Lightning that are read before a training. Tests change its classes."""

    class Trainer:
        def __init__(self) -> None:
            self._checkpoint_connector = self._data_connector = None
            self._signal_connector = self.fit_loop = None

    class _AcceleratorConnector: ...

    class _CheckpointConnector:
        def __init__(self) -> None:
            self._ckpt_path, self._loaded_checkpoint = None, {}

        def resume_start(self) -> None: ...
        def dump_checkpoint(self, weights_only: bool = False) -> None: ...

    class _DataConnector:
        def _resolve_sampler(self, dataloader: Any, shuffle: bool, mode: Any = None) -> None: ...

    class _SignalConnector:
        def __init__(self) -> None:
            self._original_handlers = {}

    class _FitLoop:
        def __init__(self) -> None:
            self.epoch_loop = self.epoch_progress = None

    class _TrainingEpochLoop:
        def __init__(self) -> None:
            self.batch_progress = None

    @dataclass
    class _BatchProgress:
        current: int
        is_last_batch: bool = False

    @dataclass
    class _ProcessedTracker:
        ready: int = 0
        started: int = 0
        completed: int = 0
        processed: int = 0

    def _call_callbacks_state_dict(trainer: Any) -> None: ...

    kinds = {k: v for k, v in locals().items() if k not in ("stand_in", "package")}
    for place in names.lightning(package):
        module, _, kind = place.partition(":")
        kind = kind or "_call_callbacks_state_dict"
        stand_in(module, **{kind: kinds[kind]})
    stand_in(package, Callback=object)
    return SimpleNamespace(**kinds)


@pytest.mark.torch
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("_CheckpointConnector", "resume_start"),
        ("_DataConnector", "_resolve_sampler"),
        ("_SignalConnector", "_original_handlers"),
    ],
)
def test_lightning_that_lacks_a_name_gets_no_callback(
    stand_in: Standing, capsys: pytest.CaptureFixture[str], kind: str, name: str
) -> None:
    pytest.importorskip("torch")
    kinds = lightning(stand_in)
    assert len(entry.lightning_callbacks()) == 1
    place = next(p for p in names.lightning("lightning.pytorch") if p.endswith(f":{kind}"))
    stand_in(place.partition(":")[0], **{kind: without(getattr(kinds, kind), name)})
    assert entry.lightning_callbacks() == []
    assert capsys.readouterr().err == (
        f"malleable: lightning.pytorch 6.0 is not supported (no {kind}.{name}): "
        "training resumes from its own checkpoints only\n"
    )


class Strategy: ...


@pytest.mark.torch
@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_no_hook_of_lightning_raises_into_the_training(
    stand_in: Standing, capsys: pytest.CaptureFixture[str], package: str
) -> None:
    """A trainer without the attributes that we read: a single line, and no further effect."""
    pytest.importorskip("torch")
    from slurm_hooks.elastic.frameworks.lightning import callback  # noqa: PLC0415

    stand_in(package, Callback=object)
    hooks = callback(package)
    trainer = SimpleNamespace(strategy=Strategy())
    for _ in range(2):
        hooks.setup(trainer, None, "fit")
        hooks.on_fit_start(trainer, None)
        hooks.on_train_start(trainer, None)
        hooks.on_train_batch_end(trainer, None, None, 0)
        hooks.on_fit_end(trainer, None)
    assert hooks.state_dict() == {}
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "not supported" in line] == [
        f"malleable: {package} 6.0 is not supported (on_fit_start: AttributeError: "
        "'types.SimpleNamespace' object has no attribute '_data_connector'): training resumes "
        "from its own checkpoints only"
    ]


@pytest.mark.torch
def test_an_accelerator_that_lacks_a_name_keeps_no_state(
    stand_in: Standing, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    from slurm_hooks.elastic.frameworks.accelerate import watch_accelerator  # noqa: PLC0415

    class Accelerator:
        def __init__(self) -> None:
            self._models = self._schedulers = self._custom_objects = self.scaler = None
            self.unwrap_model: Any = None

    stand_in("accelerate.accelerator", Accelerator=Accelerator)
    checkpoint = watch_accelerator(Accelerator())
    assert checkpoint.resume() == 0
    checkpoint.reached(1)
    checkpoint.save(1)
    assert capsys.readouterr().err == (
        "malleable: accelerate 6.0 is not supported (no Accelerator._optimizers): "
        "training resumes from its own checkpoints only\n"
    )


@pytest.mark.torch
def test_a_torch_with_other_names_trains_to_its_end(gang: Gang) -> None:
    """Workers start as torch alone starts them, and the end of the training is still reported."""
    gang.pretend_slurm()
    gang.launcher = [str(Path(__file__).with_name("launch_renamed.py"))]
    for fragment in (0, 1):
        gang.extra["SLURM_ARRAY_TASK_ID"] = str(fragment)
        gang.start(fragment, "2:2", 20)
    assert gang.wait_exit(0, 1) == [0, 0], gang.dump()
    comments = {path.name: path.read_text() for path in gang.work.glob("comment.*")}
    finished = {name: text.startswith("finished{0}") for name, text in comments.items()}
    assert finished == {"comment.77_0": True, "comment.77_1": True}, comments
    assert "torch 2." in gang.log(0)
    assert " is not supported (no SubprocessHandler._popen(self, args, env)): " in gang.log(0)


@pytest.mark.torch
def test_the_installed_torch_has_all_names() -> None:
    pytest.importorskip("torch")
    assert names.missing(names.TORCH) == []


def decorated(function: Any) -> Any:
    @functools.wraps(function)
    def called(*words: Any) -> Any:
        return function(*words)

    return called


class Base:
    @decorated
    def __init__(self) -> None:
        self.set_in_base = 1


class Other(Base):
    field: int = 0

    def begin(self, first: int, second: int = 0) -> None:
        self.set_later = first


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("set_in_base", []),
        ("set_later", []),
        ("field", []),
        ("begin(self, first)", []),
        ("begin(self, one)", ["Other.begin(self, one)"]),
        ("start(self)", ["Other.start"]),
        ("nowhere", ["Other.nowhere"]),
    ],
)
def test_the_names_of_a_class(stand_in: Standing, name: str, absent: list[str]) -> None:
    stand_in("made_up.part", Other=Other)
    assert names.missing({"made_up.part:Other": (name,)}) == absent


def test_a_module_or_class_that_is_gone_is_named(stand_in: Standing) -> None:
    stand_in("made_up.part", Other=Other)
    assert names.missing({"made_up.away:Other": ("field",)}) == ["made_up.away"]
    assert names.missing({"made_up.part:Another": ("field",)}) == ["made_up.part.Another"]
