"""Warm workers: the modules that they import ahead, and their change into the real worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slurm_hooks
from slurm_hooks.elastic.engines.torchrun import warm_pool as warm_pool_module
from slurm_hooks.elastic.engines.torchrun.warm_pool import (
    Contexts,
    WarmPool,
    is_same_environment,
    warm_contexts,
    warm_modules,
)
from slurm_hooks.elastic.engines.torchrun.warm_worker import (
    TRIES,
    _import_ahead,
    chosen,
    files_of,
    leading_imports,
)
from slurm_hooks.elastic.script import learned
from slurm_hooks.elastic.script.learned import Imports
from waiting import wait_until

OURS = Path(slurm_hooks.__file__).resolve().parents[1]
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
        ("from torch import nn\nfrom . import x\nimport numpy", ["torch", "torch:nn"]),
        ("from lazy.sub import A as a, B", ["lazy.sub", "lazy.sub:A", "lazy.sub:B"]),
        ("from torch import *", ["torch"]),
        ("import os\nos.environ['A'] = '1'\nimport torch", ["os"]),
        ("if True:\n    import torch", []),
        ("__version__ = '1'\nimport numpy", ["numpy"]),
        ("__path__ = extend()\nimport numpy", []),
        ("__a__, b = '1'\nimport numpy", []),
        ("print 'old'", []),
        ("\0", []),
        ("", []),
    ],
)
def test_only_imports_before_anything_else_are_done_ahead(source: str, names: list[str]) -> None:
    assert leading_imports(source) == names


def test_the_module_of_a_package_that_runs_first_counts() -> None:
    assert leading_imports("import os", "", "import torch\nX = 1", "import numpy") == [
        "os",
        "torch",
    ]
    assert leading_imports("import os", "print 'old'", "import torch") == ["os"]


def test_the_files_of_a_module_are_found_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["spaced/plain/__init__.py", "spaced/plain/__main__.py", "spaced/plain/mod.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("raise SystemExit('was run')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")

    def paths(module: str) -> list[str]:
        return [os.path.relpath(name, tmp_path) for name in files_of(module)]

    assert paths("spaced.plain.mod") == [names[0], names[2]]
    assert paths("spaced.plain") == [names[0], names[1]]
    assert paths("spaced.plain.none") == [names[0]]
    assert paths("spaced") == paths("nothing.of.it") == []


def test_only_libraries_that_do_not_read_ranks_are_imported() -> None:
    some = ["torch.nn", "deepspeed", "deepspeed:init", "transformers:Trainer", "mine"]
    assert chosen(some, ["named.by.user"]) == ["torch.nn", "transformers:Trainer", "named.by.user"]


def test_names_are_asked_for_as_the_program_would(
    module_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = module_dir / "lazy_package"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib\n"
        "def __getattr__(name):\n"
        "    if name == 'Part':\n"
        "        return importlib.import_module('lazy_package.part').Part\n"
        "    raise AttributeError(name)\n"
    )
    (package / "part.py").write_text("class Part: pass\n")
    (package / "other.py").write_text("")
    monkeypatch.chdir(module_dir.parent)
    _import_ahead(["lazy_package", "lazy_package:Part", "lazy_package:other"], "/nowhere")
    assert {"lazy_package.part", "lazy_package.other"} <= set(sys.modules)
    _import_ahead(["lazy_package:absent"], "/nowhere")  # the program will meet the same


def test_the_setting() -> None:
    assert warm_modules({}) == []
    assert warm_modules({"MALLEABLE_WARM": "0"}) is None
    assert warm_modules({"MALLEABLE_WARM": "torch._dynamo,a b,;x,cuda"}) == ["torch._dynamo"]
    assert warm_contexts({}) is Contexts.FIRST
    assert warm_contexts({"MALLEABLE_WARM": "x,cuda"}) is Contexts.ALL
    assert warm_contexts({"MALLEABLE_WARM": "nocuda,cuda"}) is Contexts.NONE


def test_only_variables_of_the_round_may_differ() -> None:
    began = {"A": "1", "RANK": "0"}
    assert is_same_environment(began, {"A": "1", "RANK": "5", "TORCHELASTIC_RUN_ID": "7"})
    assert not is_same_environment(began, {"A": "2"})
    assert not is_same_environment(began, {"A": "1", "LD_PRELOAD": "x"})


@pytest.fixture
def warm_pool(tmp_path: Path) -> Iterator[WarmPool]:
    (tmp_path / "mine.py").write_text("import os\nBORN = os.environ.get('RANK')\n")
    (tmp_path / "script.py").write_text(SCRIPT)
    warm_pool = WarmPool([str(tmp_path / "script.py")], 1, delay_s=0.0)
    warm_pool.prepare()
    yield warm_pool
    warm_pool.dismiss()


def command(tmp_path: Path, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-u", str(tmp_path / "script.py"), *args)


def test_a_warm_worker_equals_a_cold_worker(warm_pool: WarmPool, tmp_path: Path) -> None:
    warm_pool.wait_ready(20)
    env = {**warm_pool._workers[0].env, "RANK": "3", "LOCAL_RANK": "0"}
    words = command(tmp_path, "7")
    with open(tmp_path / "out", "w") as out, open(tmp_path / "err", "w") as err:
        process = warm_pool.take(words, env, [out, err])
        assert process is not None
        assert process.wait(20) == 7
    cold = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert cold.returncode == 7
    assert (tmp_path / "out").read_text() == cold.stdout
    assert (tmp_path / "err").read_text() == cold.stderr
    assert '"3", "3"' in cold.stdout  # the script's own modules are imported by the script


MODULE = '''"""Doc."""
import json, os, sys
from . import beside
import absolute

spec = __spec__
print(json.dumps([__name__, __file__, __doc__, sys.argv, sys.path[0], __package__,
    getattr(sys, "orig_argv", 0),
    spec.name, spec.parent, spec.origin, type(__loader__).__name__, os.environ.get("RANK"),
    beside.BORN, sys.modules["pkg"].ARGV, absolute.__name__,
    "spec" in vars(sys.modules["__main__"])]))
print("to stderr", file=sys.stderr)
sys.exit(int(sys.argv[1]))
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory, made the current directory, with modules to be started by `-m`."""
    files = {
        "absolute.py": "",
        "pkg/__init__.py": "__version__ = '1'\nimport sys\nARGV = list(sys.argv)\n",
        "pkg/beside.py": "import os\nBORN = os.environ.get('RANK')\n",
        "pkg/mod.py": MODULE,
        "pkg/sub/__init__.py": "",
        "pkg/sub/__main__.py": MODULE.replace("from .", "from .."),
        "pkg/breaks/__init__.py": "raise RuntimeError('at import')\n",
        "pkg/breaks/mod.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(OURS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def as_both(program: list[str], where: Path) -> tuple[list[object], list[object]]:
    """Exit code and outputs of a program started warm, and cold."""
    warm_pool = WarmPool(program[: 1 + (program[0] == "-m")], 1, delay_s=0.0)
    warm_pool.prepare()
    warm_pool.wait_ready(20)
    env = {**warm_pool._workers[0].env, "RANK": "3", "LOCAL_RANK": "0"}
    words = (sys.executable, "-u", *program)
    with open(where / "out", "w") as out, open(where / "err", "w") as err:
        process = warm_pool.take(words, env, [out, err])
        assert process is not None
        code = process.wait(20)
    cold = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    warm = [code, (where / "out").read_text(), (where / "err").read_text()]
    return warm, [cold.returncode, cold.stdout, cold.stderr]


@pytest.mark.parametrize("module", ["pkg.mod", "pkg.sub"])
def test_a_warm_module_equals_a_cold_module(package: Path, module: str) -> None:
    warm, cold = as_both(["-m", module, "7", "-m"], package)
    assert warm == cold
    assert warm[0] == 7
    assert '"3", "3"' in str(warm[1])


@pytest.mark.parametrize("module", ["no.such", "pkg", "pkg.breaks.mod"])
def test_a_module_that_cannot_start_prints_the_usual_error(package: Path, module: str) -> None:
    warm, cold = as_both(["-m", module], package)
    assert warm[:2] == cold[:2] == [1, ""]
    assert str(warm[2]).splitlines()[-1] == str(cold[2]).splitlines()[-1]


def test_a_module_imports_ahead(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package / "lib" / "numpy").mkdir(parents=True)
    (package / "lib" / "numpy" / "__init__.py").write_text(
        "import os\nRANK = os.environ.get('RANK')\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{package / 'lib'}:{os.environ['PYTHONPATH']}")
    (package / "pkg" / "__init__.py").write_text("__version__ = '1'\n")
    (package / "pkg" / "mod.py").write_text("import numpy\nprint(numpy.RANK)\n")
    warm, cold = as_both(["-m", "pkg.mod"], package)
    assert (warm[1], cold[1]) == ("None\n", "3\n")


def test_a_script_imports_no_module_of_the_current_directory_ahead(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "numpy.py").write_text("print('the wrong one')\n")
    (package / "lib").mkdir()
    (package / "lib" / "numpy.py").write_text("NAME = 'numpy of the library'\n")
    script = package / "at" / "script.py"
    script.parent.mkdir()
    script.write_text("import numpy\nprint(numpy.NAME)\n")
    monkeypatch.setenv("PYTHONPATH", f"{package / 'lib'}:{os.environ['PYTHONPATH']}")
    warm, cold = as_both([str(script)], package)
    assert warm == cold == [0, "numpy of the library\n", ""]


FAKE_TORCH = """
import os
from types import SimpleNamespace

def note(seat):
    with open(os.environ["NOTES"], "a") as file:
        print(seat, os.environ.get("CUDA_VISIBLE_DEVICES", ""), os.environ.get("RANK"), file=file)
    if os.environ.get("BROKEN"):
        raise RuntimeError("out of memory")

cuda = SimpleNamespace(is_available=lambda: os.environ.get("NO_GPU") != "1",
                       device_count=lambda: 2, synchronize=note)
"""


class Devices:
    """Warm workers of a script, with a torch that records its calls."""

    def __init__(self, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.script, self._notes = work / "at" / "script.py", work / "notes"
        for name, text in ((self.script, "import torch\n"), (work / "torch.py", FAKE_TORCH)):
            name.parent.mkdir(exist_ok=True)
            name.write_text(text)
        monkeypatch.setenv("PYTHONPATH", f"{work}:{OURS}")
        monkeypatch.setenv("NOTES", str(self._notes))

    def prepare(self, contexts: Contexts, count: int = 2) -> WarmPool:
        warm_pool = WarmPool([str(self.script)], count, contexts=contexts, delay_s=0.0)
        warm_pool.prepare()
        warm_pool.wait_ready(20)
        return warm_pool

    def made(self) -> list[str]:
        """The devices for which contexts were made ahead, with CUDA_VISIBLE_DEVICES and rank."""
        return sorted(self._notes.read_text().splitlines()) if self._notes.exists() else []

    def take(self, warm_pool: WarmPool, seat: int, **more: str) -> int | None:
        """The exit code of the worker of a local rank, or None if it has to start cold."""
        env = {**os.environ, "LOCAL_RANK": str(seat), "RANK": str(seat), **more}
        process = warm_pool.take((sys.executable, "-u", str(self.script)), env, [None, None])
        return process and process.wait(20)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Devices:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return Devices(tmp_path, monkeypatch)


def test_a_newcomer_makes_its_contexts_unless_workers_run(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    warm_pool = devices.prepare(Contexts.FIRST)
    assert devices.made() == ["0 3,5 None", "1 3,5 None"]
    assert [devices.take(warm_pool, seat) for seat in (0, 1)] == [0, 0]
    warm_pool.prepare()
    warm_pool.wait_ready(20)
    assert len(devices.made()) == 2
    warm_pool.dismiss()


def test_contexts_as_the_user_wants_them(devices: Devices) -> None:
    devices.prepare(Contexts.NONE).dismiss()
    assert devices.made() == []
    warm_pool = devices.prepare(Contexts.ALL, count=1)
    assert devices.take(warm_pool, 0) == 0
    warm_pool.prepare()
    warm_pool.wait_ready(20)
    assert devices.made() == ["0  None"] * 2
    warm_pool.dismiss()


def test_a_context_on_another_device_is_not_used(devices: Devices) -> None:
    warm_pool = devices.prepare(Contexts.FIRST, count=1)
    assert devices.take(warm_pool, 1) is None
    warm_pool = devices.prepare(Contexts.FIRST, count=1)
    assert devices.take(warm_pool, 0, CUDA_VISIBLE_DEVICES="1") is None


@pytest.mark.parametrize(("name", "contexts"), [("NO_GPU", []), ("BROKEN", ["0  None", "1  None"])])
def test_without_a_context_the_worker_is_still_warm(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, name: str, contexts: list[str]
) -> None:
    monkeypatch.setenv(name, "1")
    warm_pool = devices.prepare(Contexts.FIRST, count=3)  # a worker more than there are devices
    assert devices.made() == contexts
    assert [devices.take(warm_pool, seat) for seat in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import torch, os\nos.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']",
        "import torch, os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'x'",
        "import torch.multiprocessing as mp\nmp.set_start_method('fork')",
    ],
)
def test_no_context_for_a_program_that_would_read_it_too_late(devices: Devices, text: str) -> None:
    devices.script.write_text(text)
    devices.prepare(Contexts.FIRST).dismiss()
    assert devices.made() == []


def test_a_worker_that_is_quick_is_not_taken_for_dead(
    warm_pool: WarmPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, send = warm_pool._workers[0], socket.send_fds

    def send_and_wait(*args: Any) -> int:
        sent = send(*args)
        assert worker.process.wait(20) == 7
        return sent

    monkeypatch.setattr(socket, "send_fds", send_and_wait)
    env = {**worker.env, "LOCAL_RANK": "0"}
    with open(tmp_path / "out", "w") as out:
        assert warm_pool.take(command(tmp_path, "7"), env, [out, out]) is worker.process


def test_a_worker_that_does_not_fit_starts_cold(warm_pool: WarmPool, tmp_path: Path) -> None:
    assert warm_pool.take((sys.executable, "-u", "-m", "x"), dict(os.environ), [None, None]) is None
    warm_pool._due = 0.0
    warm_pool.prepare()
    changed = {**os.environ, "OMP_NUM_THREADS": "77"}
    assert warm_pool.take(command(tmp_path), changed, [None, None]) is None
    warm_pool._due = 0.0
    warm_pool.prepare()
    warm_pool._workers[0].process.kill()
    warm_pool._workers[0].process.wait()
    assert warm_pool.take(command(tmp_path), warm_pool._workers[0].env, [None, None]) is None


def test_a_warm_worker_ends_with_its_agent(warm_pool: WarmPool) -> None:
    worker = warm_pool._workers.pop()
    worker._channel.close()
    assert worker.process.wait(20) == 0


@pytest.mark.parametrize(("line", "is_there"), [("", True), ("# TORCHDYNAMO_DISABLE", False)])
def test_work_that_torch_delays_until_the_first_optimizer_is_done_ahead(
    package: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_there: bool
) -> None:
    torch = package / "lib" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("")
    (torch / "_dynamo.py").write_text("")
    script = package / "at" / "script.py"
    script.parent.mkdir()
    script.write_text(f"import sys, torch\n{line}\nprint('torch._dynamo' in sys.modules)\n")
    monkeypatch.setenv("PYTHONPATH", f"{package / 'lib'}:{os.environ['PYTHONPATH']}")
    warm, cold = as_both([str(script)], package)
    assert warm == [0, f"{is_there}\n", ""]
    assert cold == [0, "False\n", ""]


EARLY = "IS_AHEAD = not hasattr(sys.modules['__main__'], '__file__')\n"
CUDA = "from types import SimpleNamespace as S\ncuda = S(is_initialized=lambda: True)\n"
READS = "os.environ.get({!r})\n"


def learned_name(job: Path) -> str:
    """The file in which the imports of the job's program are."""
    return learned.name_of([str(job / "at" / "script.py")])


@pytest.fixture
def job(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a job whose program imports two libraries, `first` and `second`."""
    site = package / "site-packages"
    for name in ("first", "second"):
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text("import os, subprocess, sys\n" + EARLY)
    (package / "at").mkdir()
    (package / "at" / "script.py").write_text(
        "import os\nos.environ['MODE'] = os.environ['OMP_NUM_THREADS'] = '3'\n"
        "import first, second\nprint(first.IS_AHEAD, second.IS_AHEAD)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}:{OURS}")
    monkeypatch.setenv("MALLEABLE_DIR", str(package / "job"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PET_RDZV_ENDPOINT", raising=False)
    (package / "job").mkdir(mode=0o700)
    return package


@pytest.mark.parametrize(
    ("line", "changed", "ahead"),
    [
        ("", [], "True True"),
        ("", ["MODE", "RANK", "TORCHELASTIC_RUN_ID"], "True True"),
        ("", ["CUDA_MODULE_LOADING", "TORCHINDUCTOR_CACHE_DIR"], "True True"),
        ("", ["PYTORCH_NVML_BASED_CUDA_CHECK"], "True True"),
        (READS.format("RANK"), [], "False True"),
        (READS.format("TORCHELASTIC_RUN_ID"), [], "False True"),
        (READS.format("MODE"), [], "True True"),
        (READS.format("MODE"), ["MODE"], "False True"),
        ("os.environ.setdefault('MODE', '3')\n", ["MODE"], "True True"),
        ("dict(os.environ.items())\n", ["HOME"], "True True"),
        ("os.environ.copy()\n", ["HOME"], "False True"),  # and may look at any of it
        ("", ["OMP_NUM_THREADS"], "False False"),
        ("", ["PYTORCH_CUDA_ALLOC_CONF"], "False False"),
        ("if IS_AHEAD: raise ValueError\n", [], "False True"),
        ("child = subprocess.Popen(['sleep', '0'])\n", [], "False True"),
        ("subprocess.run(['true'])\n", [], "True True"),
        ("from slurm_hooks.elastic.frameworks import entry\nentry.say_once('')\n", [], "True True"),
        ("import owned\n", [], "False False"),
    ],
)
def test_an_import_that_would_have_another_effect_is_not_made_ahead(
    job: Path, line: str, changed: list[str], ahead: str
) -> None:
    place = job / "site-packages" / "first" / "__init__.py"
    place.write_text(place.read_text() + line)
    (job / "at" / "owned.py").write_text("")
    learned.write(os.environ, learned_name(job), Imports(("first", "second"), tuple(changed)))
    warm, cold = as_both([str(job / "at" / "script.py")], job)
    assert (warm[1], cold[1]) == (f"{ahead}\n", "False False\n"), warm
    assert warm[0] == cold[0] == 0


def test_an_import_that_makes_a_context_is_not_made_ahead(job: Path) -> None:
    torch = job / "site-packages" / "torch.py"
    torch.write_text("import sys\n" + EARLY + CUDA)
    (job / "at" / "script.py").write_text("x = 1\nimport torch\nprint(torch.IS_AHEAD)\n")
    learned.write(os.environ, learned_name(job), Imports(("torch",)))
    warm, _ = as_both([str(job / "at" / "script.py")], job)
    assert warm == [0, "False\n", ""]


def test_what_the_script_imports_first_is_ahead_even_if_learned_imports_must_wait(
    job: Path,
) -> None:
    torch = job / "site-packages" / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("import sys\n" + EARLY)
    (torch / "starts.py").write_text(
        "import subprocess\nchild = subprocess.Popen(['sleep', '0'])\n"
    )
    (job / "at" / "script.py").write_text("import torch\nprint(torch.IS_AHEAD)\n")
    learned.write(os.environ, learned_name(job), Imports(("torch", "torch.starts", "first")))
    warm, _ = as_both([str(job / "at" / "script.py")], job)
    assert warm == [0, "True\n", ""]


def test_a_worker_gives_up_after_a_few_imports_that_must_wait(job: Path) -> None:
    names = tuple(f"reads_{n}" for n in range(TRIES + 1))
    for name in names:
        place = job / "site-packages" / f"{name}.py"
        place.write_text("import os\n" + READS.format("RANK"))
    learned.write(os.environ, learned_name(job), Imports((*names, "first")))
    warm, _ = as_both([str(job / "at" / "script.py")], job)
    assert warm == [0, "False False\n", ""]


TELL = """
import os
began = dict(os.environ)
os.environ["MODE"] = "3"
from slurm_hooks.elastic.script import learned
import owned
{line}
def late():
    try:
        import first.part
    except ImportError:
        pass
late()
learned.tell(began)
"""


VENDORED = "import sys; sys.path.insert(0, os.getcwd() + '/vendored'); import second"


@pytest.mark.parametrize(
    ("line", "env", "is_told"),
    [
        ("", {"RANK": "0"}, True),
        ("", {"RANK": "1"}, False),
        ("", {"RANK": "0", "MALLEABLE_WARM": "0"}, False),
        ("import second; second.load = lambda: 3", {"RANK": "0"}, False),
        (VENDORED, {"RANK": "0"}, False),
    ],
)
def test_the_first_process_tells_which_libraries_it_has_imported(
    job: Path, line: str, env: dict[str, str], is_told: bool
) -> None:
    (job / "site-packages" / "first" / "part.py").write_text("")
    (job / "at" / "owned.py").write_text("def load(): return 4\n")
    (job / "vendored").mkdir()
    (job / "vendored" / "second.py").write_text("IS_AHEAD = False\n")
    script = job / "at" / "script.py"
    script.write_text(TELL.format(line=line))
    subprocess.run([sys.executable, str(script)], cwd=job, env={**os.environ, **env}, check=True)
    name = learned_name(job)
    imports = learned.read(os.environ, name)
    assert (imports is not None) == is_told == learned.is_told(os.environ, name)
    if imports:
        names = [name for name in imports.modules if name.split(".")[0] in ("first", "owned")]
        assert names == ["first", "first.part"]
        assert "json" in imports.modules
        assert not [name for name in imports.modules if name.startswith("slurm_hooks")]
        assert imports.changed == ("MODE",)


def test_a_worker_whose_imports_never_end_is_not_used(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool_module, "HUNG_S", 0.0)
    first = job / "site-packages" / "first" / "__init__.py"
    first.write_text("import time\ntime.sleep(900)\n")
    learned.write(os.environ, learned_name(job), Imports(("first",)))
    script = str(job / "at" / "script.py")
    pool = WarmPool([script], 1, delay_s=0.0)
    pool.prepare()
    (worker,) = pool._workers
    assert pool.take((sys.executable, "-u", script), worker.env, [None, None]) is None
    assert worker.process.poll() is not None


def test_the_next_workers_are_warming_until_all_have_imported_what_was_learned(job: Path) -> None:
    gate = job / "gate"
    second = job / "site-packages" / "second" / "__init__.py"
    held = f"import time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    second.write_text(second.read_text() + held)
    pool = WarmPool([str(job / "at" / "script.py")], 2, delay_s=0.0)
    try:
        assert pool.is_warming()
        pool.prepare()
        wait_until(lambda: not pool.is_warming(), 60, lambda: "nothing was learned")
        learned.write(os.environ, learned_name(job), Imports(("first", "second")))
        assert pool.is_warming()  # it looks at once
        pool.prepare()
        assert pool.is_warming()
        gate.touch()
        wait_until(lambda: not pool.is_warming(), 60, lambda: "not warm")
    finally:
        pool.dismiss()


def test_a_damaged_list_of_imports_leaves_workers_as_they_were(job: Path) -> None:
    (job / "job" / learned_name(job)).write_text('{"modules": [1], "changed": []}')
    warm, _ = as_both([str(job / "at" / "script.py")], job)
    assert warm == [0, "False False\n", ""]


def test_another_program_of_the_job_has_a_list_of_its_own(job: Path) -> None:
    learned.write(os.environ, learned.name_of(["-m", "first"]), Imports(("first", "second")))
    warm, _ = as_both([str(job / "at" / "script.py")], job)
    assert warm == [0, "False False\n", ""]
