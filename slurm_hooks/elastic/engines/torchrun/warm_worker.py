"""A warm worker: an interpreter that has done the program's imports before it is needed.

The agent starts it with `python -u -c PROGRAM ...`, and later sends an order through a socket:
environment, arguments, redirected outputs. From then on it is the process that `python -u
script.py` or `python -u -m module` would have been, pid and exit code included.

It imports ahead the libraries that an earlier process of the job has imported up to its first step
(script/learned.py, import_ahead.py). Before such a process was there, it imports the modules that
the program imports first of all, before any of its statements could have changed the environment.
These are only libraries known not to look at ranks during their import, or libraries that can be
told the ranks afterwards. It also asks for the names in a module, since some packages import a part
of theirs only then. It makes its CUDA context ahead only if the agent says so.

It must not import torch unless the program does, and must end with its agent.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import runpy
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.machinery import PathFinder, SourceFileLoader
from typing import Any

from slurm_hooks.elastic.engines.kin import end_with_parent
from slurm_hooks.elastic.engines.torchrun.import_ahead import LIBRARIES, import_ahead, is_hidden
from slurm_hooks.elastic.frameworks.entry import begin, tell_ranks
from slurm_hooks.elastic.log import debug, suppressed
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script import learned, observation

# Without a name that the script's own code could see.
AT_LAST = f"finally: __import__('sys').modules[{__name__!r}].see_end()"
PROGRAM = (
    "from slurm_hooks.elastic.engines.torchrun import warm_worker as warm\n"
    "try: warm.stand_by()()\n" + AT_LAST
)
READY = b"r"
ORDER_BYTES = 4 << 20
_own_pid = 0
TRIES = 4  # of a list of learned imports, each without the import that must wait
# With a context made ahead, a program would set such a variable, or fork, too late.
_BEFORE_CUDA = re.compile(r"\b(CUDA|HIP|ROCR|PYTORCH\w*)_[A-Z]|\bfork\b")

# torch imports this at the first optimizer: more than a second, in every new process.
_OF_OPTIMIZERS = "torch._dynamo"
# With that imported ahead, a program would set such a variable too late.
_BEFORE_DYNAMO = re.compile(r"\bTORCH(DYNAMO|INDUCTOR|_COMPILE|_TRACE)")


def leading_imports(*sources: str) -> list[str]:
    """Return the modules that sources import before they do anything else, and `module:name` for
    the names that they take from them.

    The sources run in this order: packages, then their modules. The search ends at a source that is
    not Python.
    """
    names: list[str] = []
    for source in sources:
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError) as error:
            debug("looking for imports to do in advance", error)
            break
        for statement in body:
            if isinstance(statement, ast.Import):
                names += [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom) and not statement.level:
                module = statement.module or ""
                taken = (alias.name for alias in statement.names if alias.name != "*")
                names += [module, *(f"{module}:{name}" for name in taken)]
            elif not _is_inert(statement):
                return names
    return names


def _is_inert(statement: ast.stmt) -> bool:
    """Return True for a docstring, or a line like `__version__ = "1.0"`."""
    if isinstance(statement, ast.Assign):
        names = [t.id for t in statement.targets if isinstance(t, ast.Name)]
        if len(names) < len(statement.targets) or not all(n.startswith("__") for n in names):
            return False
    elif not isinstance(statement, ast.Expr):
        return False
    return isinstance(statement.value, ast.Constant)


def chosen(names: Iterable[str], extra: Iterable[str]) -> list[str]:
    """Return the `names` that may be imported ahead, and all of `extra`."""
    known = LIBRARIES | getattr(sys, "stdlib_module_names", frozenset())
    return [*(n for n in names if re.split("[.:]", n)[0] in known), *extra]


def files_of(module: str) -> Iterator[str]:
    """Yield the files that `python -m module` runs, in order, without running them."""
    path, name = list(sys.path), ""
    for part in [*module.split("."), "__main__"]:
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return
        if spec.origin and spec.has_location:
            yield spec.origin
        if spec.submodule_search_locations is None:
            return
        path = list(spec.submodule_search_locations)


def stand_by() -> Callable[[], object]:
    """Import, report ready, wait for the order, become the worker. The caller then calls the
    result. Ends the process if the agent ends first.
    """
    fd, tries, seat, extra, *program = sys.argv[1:]
    channel = socket.socket(fileno=int(fd))
    inherited = set(os.environ)  # variables that imports add stay, as they would without us
    observation.begin(os.environ)
    begin()
    _prepare(program, [word for word in extra.split(",") if word], seat, int(tries))
    with suppressed(OSError, doing="reporting that this worker is warm"):
        channel.send(READY)
    order = _receive(channel)
    if order is None:
        os._exit(0)
    channel.close()
    return _become(order, inherited)


def _prepare(program: Sequence[str], extra: Sequence[str], seat: str, tries: int) -> None:
    is_module = program[0] == "-m"
    files = list(files_of(program[1])) if is_module else [program[0]]
    sources: list[str] = []
    with suppressed(OSError, ValueError, doing="reading the program for a warm worker"):
        for name in files:
            with open(name, encoding="utf-8") as file:
                sources.append(file.read())
    place = os.getcwd() if is_module else os.path.dirname(os.path.realpath(program[0]))
    _set_path(place)  # a script uses modules of its own folder, not of the current directory
    if tries < TRIES:
        with suppressed(Exception, doing="importing what earlier processes imported"):
            _import_learned(program, place, tries)
    _import_ahead(chosen(leading_imports(*sources), extra), place)  # also if a part had to wait
    if "torch" in sys.modules and not any(map(_BEFORE_DYNAMO.search, sources)):
        _import_ahead([_OF_OPTIMIZERS], place)
    is_plain = len(sources) == len(files) and not any(map(_BEFORE_CUDA.search, sources))
    if seat and is_plain:
        open_device(sys.modules.get("torch"), int(seat))


def _import_learned(program: Sequence[str], own: str, tries: int) -> None:
    """Import what earlier processes of this program have imported, if that is known. If some of it
    must wait, start this process again.
    """
    began, name = dict(os.environ), learned.name_of(program)
    imports = learned.read(began, name)
    if not imports or not imports.modules:
        return
    kept = import_ahead(imports, own)
    if kept != imports:
        with suppressed(Exception, doing="noting which imports must wait"):
            learned.write(began, name, kept)
        words = [sys.executable, "-u", "-c", PROGRAM, sys.argv[1], str(tries + 1), *sys.argv[3:]]
        os.execve(sys.executable, words, began)


def _import_ahead(names: list[str], own: str) -> None:
    for name in names:
        module, _, part = name.partition(":")
        if not is_hidden(module.partition(".")[0], own):
            # the program will meet the same error, and report it
            with suppressed(Exception, doing=f"importing {name} in advance"):
                package = importlib.import_module(module)
                if part and not hasattr(package, part):
                    importlib.import_module(f"{module}.{part}")


def open_device(torch: Any, seat: int) -> None:
    """Make the CUDA context of the device that the worker of this local rank will use. The current
    device stays the same.

    Without torch, CUDA or such a device there is no effect. An error is left for the program to
    meet.
    """
    with suppressed(Exception, doing=f"making the CUDA context of device {seat} in advance"):
        if torch.cuda.is_available() and seat < torch.cuda.device_count():
            torch.cuda.synchronize(seat)


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    text, handles = b"", []
    while not text.endswith(b"\n"):
        try:
            part, fds, _, _ = socket.recv_fds(channel, 65536, 2)
        except OSError as error:
            debug("receiving the order of this worker", error)
            return None
        if not part or len(text) > ORDER_BYTES:
            return None
        text += part
        handles += fds
    order: dict[str, Any] = json.loads(text)
    for target in order["redirect"]:
        handle = handles.pop(0)
        os.dup2(handle, target)
        os.close(handle)
    return order


def _become(order: dict[str, Any], inherited: set[str]) -> Callable[[], object]:
    for name in inherited - set(order["env"]):
        os.environ.pop(name, None)
    os.environ.update(order["env"])
    tell_ranks(os.environ)
    sys.modules["__main__"].__dict__.pop("warm", None)
    return become(order["argv"])


def become(program: Sequence[str]) -> Callable[[], object]:
    """Make this process the process that `python -u` with these words would be. The caller then
    calls the result.
    """
    global _own_pid  # noqa: PLW0603
    _own_pid = os.getpid()
    end_with_parent()
    observation.announce()
    program = list(program)
    if hasattr(sys, "orig_argv"):  # Python 3.10
        sys.orig_argv = [sys.executable, "-u", *program]
    if program[0] == "-m":
        return _become_module(program[1], program[2:])
    return _become_script(program)


def see_end() -> None:
    """The program has ended. If it has failed, tell the agent: an interpreter may take seconds to
    end, and the agent may stop this process meanwhile and take it for a healthy process.
    """
    observation.see_end()
    error = sys.exc_info()[1]
    has_failed = error is not None and not (isinstance(error, SystemExit) and not error.code)
    if has_failed and os.getpid() == _own_pid:  # else it is a child of the program
        with suppressed(Exception, doing="telling the agent that the program has failed"):
            MailboxReader(os.environ).write_failed()


def _become_script(program: list[str]) -> Callable[[], object]:
    sys.argv = program
    names = sys.modules["__main__"].__dict__
    _set_path(os.path.dirname(os.path.realpath(program[0])))
    place = os.path.abspath(program[0])
    names.update(__file__=place, __cached__=None, __loader__=SourceFileLoader("__main__", place))
    with open(place, "rb") as file:
        return partial(exec, compile(file.read(), place, "exec", dont_inherit=True), names)


def _become_module(module: str, arguments: list[str]) -> Callable[[], object]:
    """Use the very function that the interpreter calls for `-m`. It has no public name."""
    sys.argv = ["-m", *arguments]
    _set_path(os.getcwd())
    return partial(runpy._run_module_as_main, module)  # type: ignore[attr-defined]


def _set_path(place: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = place
