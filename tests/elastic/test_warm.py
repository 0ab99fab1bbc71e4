"""Workers in waiting: what they import ahead, and that they become the very worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_hooks.elastic.options import warm_modules
from slurm_hooks.elastic.standby import Standby, is_same_environment
from slurm_hooks.elastic.warm import chosen, leading_imports

SCRIPT = '''"""Doc."""
from __future__ import annotations
import json, os, sys
import mine

class Kept: pass

print(json.dumps([__name__, __file__, __doc__, sys.argv, sys.path[0], os.environ.get("RANK"),
    mine.BORN, Kept.__module__, "Kept" in vars(sys.modules["__main__"]), os.environ.get("GONE"),
    eval("__annotations__") if "__annotations__" in globals() else {}]))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
'''


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('"""Doc."""\nimport os\nimport torch.nn as nn\nX = 1\nimport numpy', ["os", "torch.nn"]),
        ("from torch import nn\nfrom . import x\nimport numpy", ["torch"]),
        ("import os\nos.environ['A'] = '1'\nimport torch", ["os"]),
        ("if True:\n    import torch", []),
        ("print 'old'", []),
        ("\0", []),
        ("", []),
    ],
)
def test_only_imports_before_anything_else_are_done_ahead(source: str, names: list[str]) -> None:
    assert leading_imports(source) == names


def test_only_libraries_that_do_not_look_at_ranks() -> None:
    assert chosen(["torch.nn", "deepspeed", "mine"], ["named.by.user"]) == [
        "torch.nn",
        "named.by.user",
    ]


def test_the_setting() -> None:
    assert warm_modules({}) == []
    assert warm_modules({"MALLEABLE_WARM": "0"}) is None
    assert warm_modules({"MALLEABLE_WARM": "torch._dynamo,a b,;x"}) == ["torch._dynamo"]


def test_only_what_belongs_to_the_round_may_differ() -> None:
    began = {"A": "1", "RANK": "0"}
    assert is_same_environment(began, {"A": "1", "RANK": "5", "TORCHELASTIC_RUN_ID": "7"})
    assert not is_same_environment(began, {"A": "2"})
    assert not is_same_environment(began, {"A": "1", "LD_PRELOAD": "x"})


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[Standby]:
    (tmp_path / "mine.py").write_text("import os\nBORN = os.environ.get('RANK')\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    standby = Standby(str(tmp_path / "script.py"), 1, [], 0.0)
    standby.prepare()
    yield standby
    standby.dismiss()


def command(tmp_path: Path, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-u", str(tmp_path / "script.py"), *args)


def test_a_warm_worker_is_what_a_cold_one_would_have_been(standby: Standby, tmp_path: Path) -> None:
    standby.wait_ready(20)
    env = {**standby._workers[0].env, "RANK": "3"}
    words = command(tmp_path, "7")
    with open(tmp_path / "out", "w") as out, open(tmp_path / "err", "w") as err:
        process = standby.take(words, env, [out, err])
        assert process is not None
        assert process.wait(20) == 7
    cold = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert cold.returncode == 7
    assert (tmp_path / "out").read_text() == cold.stdout
    assert (tmp_path / "err").read_text() == cold.stderr
    assert '"3", "3"' in cold.stdout  # the script's own modules are imported by the script


def test_what_does_not_fit_starts_cold(standby: Standby, tmp_path: Path) -> None:
    assert standby.take((sys.executable, "-u", "-m", "x"), dict(os.environ), [None, None]) is None
    standby._due = 0.0
    standby.prepare()
    changed = {**os.environ, "OMP_NUM_THREADS": "77"}
    assert standby.take(command(tmp_path), changed, [None, None]) is None
    standby._due = 0.0
    standby.prepare()
    standby._workers[0].process.kill()
    standby._workers[0].process.wait()
    assert standby.take(command(tmp_path), standby._workers[0].env, [None, None]) is None


def test_goes_with_its_agent(standby: Standby) -> None:
    worker = standby._workers.pop()
    worker._channel.close()
    assert worker.process.wait(20) == 0


def test_another_torch_is_left_alone(standby: Standby) -> None:
    class Other:
        def _popen(self, command: str) -> None: ...

    assert not standby.install(Other)
    assert not standby.install(object)
