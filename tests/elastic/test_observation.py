"""Scripts without our library are observed, without any effect on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_hooks.elastic.engines.torchrun.cold_worker import PROGRAM, observed
from slurm_hooks.elastic.engines.torchrun.warm_pool import WarmPool
from slurm_hooks.elastic.mailbox import MAILBOX, Mailbox
from slurm_hooks.elastic.observed import Observed
from slurm_hooks.elastic.script.observer import _creates_state

pytestmark = pytest.mark.torch
HERE = Path(__file__).resolve().parents[2]
ENV = {k: v for k, v in os.environ.items() if not k.startswith("MALLEABLE_")}


class Script:
    """A script that is run as torchrun would start it, with the mailbox of an agent."""

    def __init__(self, work: Path) -> None:
        self.work, self.mailbox = work, Mailbox()
        self.path = work / "at" / "script.py"
        self.path.parent.mkdir()
        self.env = {**ENV, **self.mailbox.environment(), "PYTHONPATH": str(HERE)}

    def write(self, text: str) -> None:
        self.path.write_text(textwrap.dedent(text))

    def words(self, *args: str) -> tuple[str, ...]:
        return (sys.executable, "-u", str(self.path), *args)

    def run(self, words: tuple[str, ...], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            env={**self.env, **more},
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def run_observed(self, *args: str, **more: str) -> subprocess.CompletedProcess[str]:
        words = self.words(*args)
        return self.run((*words[:2], "-c", PROGRAM, *words[2:]), **more)

    def run_warm(self, *args: str) -> int:
        os.environ.update(self.mailbox.environment())
        warm_pool = WarmPool([str(self.path)], 1, delay_s=0.0)
        warm_pool.prepare()
        warm_pool.wait_ready(60)
        env = {**warm_pool._workers[0].env, "LOCAL_RANK": "0"}
        process = warm_pool.take(self.words(*args), env, [None, None])
        warm_pool.dismiss()
        assert process is not None
        return process.wait(60)

    def seen(self) -> Observed:
        (seen,) = self.mailbox.observed()
        return seen


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    for name in [*Mailbox().environment(), "MALLEABLE_OBSERVE"]:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")  # so that settings of a test are undone
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    return Script(tmp_path)


TRAIN = """
    import os, sys, time
    import torch
    model = torch.nn.Linear(1000, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(seconds):
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            optimizer.zero_grad()
            model(torch.ones(1000)).sum().backward()
            time.sleep(0.02)
            optimizer.step()
            torch.save([1.0], sys.argv[1] + "/loss")

    train(1.0)
    path = sys.argv[1] + "/checkpoint"
    torch.save(model.state_dict(), path)
"""
MORE = """
    import pathlib
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from slurm_hooks.elastic.script import observation

    def seen():
        print(observation._observer.seen.saves, flush=True)
        optimizer.step()

    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    state = model.state_dict()
    seen()
    save(obj=state, f=pathlib.Path(path))
    seen()
    train(1.0)
    dcp.save(state, checkpoint_id=path + "1")
    seen()
    dcp.async_save(state, checkpoint_id=path + "2").result()
    seen()
"""
LAST = "train(1.5)\n"


def test_steps_and_checkpoints_of_a_plain_script_are_seen(script: Script, tmp_path: Path) -> None:
    """The save may have any name, and any code may stand before the imports."""
    before = "import os\nos.environ['X'] = '1'\nfrom torch.serialization import save\n"
    script.path.write_text(before + textwrap.dedent(TRAIN) + textwrap.dedent(MORE) + LAST)
    done = script.run_observed(str(tmp_path))
    assert done.returncode == 0, done.stderr
    saves = [int(line) for line in done.stdout.split()]
    assert saves[:2] == [1, 2]
    assert saves[1] < saves[2] < saves[3]  # a step may consist of several
    seen = script.seen()
    assert seen.saves == saves[3]
    assert 0.5 <= seen.widest_s < 30
    assert 0.3 < seen.age_s < 30
    assert 0.02 <= seen.step_s < 3


def test_a_step_that_prepares_a_load_is_not_counted(script: Script) -> None:
    """torch makes it in order to create the state of a new optimizer, with a learning rate of 0."""
    script.write("""
        import torch
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
        from slurm_hooks.elastic.script.observation import seen
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        get_optimizer_state_dict(model, optimizer)
        print(len(optimizer.state), seen().steps)
        optimizer.step()
        print(seen().steps)
    """)
    done = script.run_observed()
    assert done.stdout.split() == ["2", "0", "1"], done


@pytest.mark.parametrize(
    ("rates", "creates"), [([0.0], True), ([0.0, 1.0], False), ([None], False), ([], False)]
)
def test_a_step_with_rates_of_zero_changes_nothing(rates: list[object], creates: bool) -> None:
    """Adafactor has `None` where it chooses its rate itself."""
    optimizer = SimpleNamespace(param_groups=[{"lr": rate} for rate in rates])
    assert _creates_state(optimizer) is creates


def test_a_warm_worker_is_observed_too(script: Script, tmp_path: Path) -> None:
    script.path.write_text(textwrap.dedent(TRAIN) + LAST)
    assert script.run_warm(str(tmp_path)) == 0
    assert script.seen().saves == 1


HONEST = """
    import inspect, io, json, os, pickle, sys, warnings
    import torch
    import torch.distributed.checkpoint as dcp

    def outcome(function, *args, **kwargs):
        try:
            return repr(function(*args, **kwargs))
        except BaseException as error:
            return f"{type(error).__name__}: {error}"

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    text = io.BytesIO()
    outcomes = {
        "none": outcome(torch.save, {"a": torch.ones(2)}, text),
        "bytes": len(text.getvalue()),
        "again": repr(torch.load(io.BytesIO(text.getvalue()))),
        "few": outcome(torch.save),
        "many": outcome(torch.save, 1, 2, 3, 4, 5, 6, 7, 8),
        "odd": outcome(torch.save, 1, io.BytesIO(), nonsense=1),
        "directory": outcome(torch.save, 1, "/nowhere/at/all").partition("\\n")[0],
        "closed": outcome(torch.save, 1, open(os.devnull)).partition("\\n")[0],
        "no file": outcome(torch.save, 1, None),
        "lambda": outcome(torch.save, lambda: 0, io.BytesIO()).partition(" at 0x")[0],
        "step": outcome(optimizer.step),
        "closure": outcome(optimizer.step, lambda: 7),
        "bad": outcome(optimizer.step, 1, 2).replace("Adam", ""),
        "same": torch.save is torch.serialization.save,
        "pickled": pickle.loads(pickle.dumps(torch.save)) is torch.save,
        "dcp": pickle.loads(pickle.dumps(dcp.save)) is dcp.save,
        "named": [torch.save.__module__, torch.save.__qualname__, dcp.save.__name__],
        "signature": [str(inspect.signature(f)) for f in (torch.save, dcp.save, dcp.async_save)],
        "source": len(inspect.getsource(torch.save)),
        "docs": torch.save.__doc__ == torch.serialization.save.__doc__ and len(torch.save.__doc__),
        "loader": [type(torch.serialization.__loader__).__name__,
                   sorted(vars(torch.serialization.__loader__)),
                   torch.serialization.__loader__ is torch.serialization.__spec__.loader],
        "names": sorted(n for n in vars(sys.modules["__main__"]) if not n.startswith("__")),
        "path": sys.path[0],
        "argv": [sys.argv, __name__, __file__],
        "optimizer": pickle.loads(pickle.dumps(optimizer)).state_dict()["state"][0]["step"].item(),
    }
    plain, calls = torch.save, []
    torch.save = lambda *args, **kwargs: (calls.append(1), plain(*args, **kwargs))[1]
    outcomes["own"] = [outcome(torch.save, 1, io.BytesIO()), len(calls)]
    torch.save = plain
    print(json.dumps(outcomes))
    print("to stderr", file=sys.stderr)
    sys.exit(3)
"""


def test_observation_does_not_change_a_script(script: Script) -> None:
    script.write(HONEST)
    plain = script.run(script.words("a", "-c", "b"))
    seen = script.run_observed("a", "-c", "b")
    assert plain.returncode == seen.returncode == 3, seen.stderr
    assert json.loads(seen.stdout) == json.loads(plain.stdout)
    assert seen.stderr == plain.stderr == "to stderr\n"


def test_an_error_of_the_script_ends_as_it_would(script: Script) -> None:
    script.write("import torch\ntorch.save(1, '/nowhere/at/all')\n")
    plain, seen = script.run(script.words()), script.run_observed()
    assert seen.returncode == plain.returncode == 1
    assert seen.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("end", "has_failed"),
    [("sys.exit(7)", True), ("raise ValueError", True), ("sys.exit()", False), ("pass", False)],
)
def test_a_failure_is_known_if_the_agent_stops_the_process_while_it_ends(
    script: Script, end: str, has_failed: bool
) -> None:
    script.write(
        f"""
        import atexit, os, signal, sys
        atexit.register(os.kill, os.getpid(), signal.SIGTERM)
        {end}
        """
    )
    for more in ({}, {"MALLEABLE_OBSERVE": "0"}):
        assert not script.mailbox.has_failed()
        assert script.run_observed(**more).returncode == -signal.SIGTERM  # it is not kept waiting
        assert script.mailbox.has_failed() is has_failed
        script.mailbox.clear()


def test_a_child_that_fails_is_no_failure_of_the_program(script: Script) -> None:
    script.write("import os, sys\nif os.fork() == 0:\n    sys.exit(1)\nos.wait()\n")
    assert script.run_observed().returncode == 0
    assert not script.mailbox.has_failed()


def test_modules_beside_the_current_directory_are_not_taken_for_ours(script: Script) -> None:
    for name in ("ast", "socket", "json", "slurm_hooks"):
        (script.work / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    script.write("import socket\nprint(socket.AF_INET)\n")
    plain, seen = script.run(script.words()), script.run_observed()
    assert (seen.returncode, seen.stdout) == (0, plain.stdout)


def test_observation_can_be_turned_off_and_needs_an_agent(script: Script) -> None:
    words = script.words("7")
    script.write("")
    assert observed(words, script.env) == (*words[:2], "-c", PROGRAM, *words[2:])
    module = (*words[:2], "-m", "json.tool")
    assert observed(module, script.env) == (*words[:2], "-c", PROGRAM, "-m", "json.tool")
    no_agent = {k: v for k, v in script.env.items() if k != MAILBOX}
    for env in ({**script.env, "MALLEABLE_OBSERVE": "0"}, no_agent):
        assert observed(words, env) == words
    assert observed(words, {**script.env, "PYTHONPATH": "/elsewhere"}) == words
    for other in (("numactl", *words), words[:2], (*words[:2], "/nowhere.py"), ("a", "-u", "b.py")):
        assert observed(other, script.env) == other


def test_observation_that_is_turned_off_is_off_in_a_warm_worker(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.write("import sys\nimport torch\nsys.exit(hasattr(torch.save, '__wrapped__') and 5)\n")
    assert script.run_warm() == 5
    monkeypatch.setenv("MALLEABLE_OBSERVE", "0")
    assert script.run_warm() == 0


@pytest.mark.nightly
def test_a_compiled_step_works(script: Script) -> None:
    script.write(
        """
        import torch

        weight = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([weight], lr=1.0)

        @torch.compile(backend="eager")
        def step():
            optimizer.step()

        for _ in range(3):
            weight.grad = torch.ones(1)
            step()
        print(weight.item())
        """
    )
    plain, seen = script.run(script.words()), script.run_observed()
    assert (seen.returncode, seen.stdout) == (plain.returncode, plain.stdout) == (0, "-2.0\n")
    assert len(seen.stderr.splitlines()) == len(plain.stderr.splitlines())


def test_a_process_group_is_freed_after_the_reducer_that_uses_it(script: Script) -> None:
    """In the other order a training that has ended may hang (process_groups.py)."""
    script.write(
        """
        import torch._dynamo  # as the first optimizer does, and warm workers do in advance
        import torch.distributed as dist
        import weakref
        from torch.nn.parallel import DistributedDataParallel

        def train():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
            model = DistributedDataParallel(torch.nn.Linear(2, 1))
            for part in ("process_group", "reducer", "logger"):
                weakref.finalize(getattr(model, part), print, part)
            model(torch.ones(1, 2)).sum().backward()
            dist.destroy_process_group()

        train()
        print("end")
        """
    )
    seen = script.run_observed()  # of itself: logger, process_group, reducer
    freed = seen.stdout.split()
    assert (seen.returncode, freed[2:]) == (0, ["process_group", "end"]), seen
    assert set(freed[:2]) == {"reducer", "logger"}
