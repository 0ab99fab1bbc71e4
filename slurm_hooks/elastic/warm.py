"""A worker in waiting: an interpreter that has done the script's imports before it is needed.

The agent starts it with `python -u -c PROGRAM fd`, and later sends one order through the
socket `fd`: environment, arguments, redirected outputs. From then on it is what
`python -u script.py` would have been, pid and exit code included. What is imported ahead is
only what the script imports first of all, before any statement of its own could have changed
the environment, and only libraries known not to look at ranks while they are imported.

It must not know rounds or torch, and must be gone when its agent is.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

PROGRAM = "from slurm_hooks.elastic import warm; exec(*warm.stand_by())"
READY = b"r"
ORDER_BYTES = 4 << 20
LIBRARIES = frozenset(
    {"torch", "torchvision", "torchaudio", "numpy", "scipy", "sklearn", "pandas", "PIL"}
    | {"matplotlib", "h5py", "zarr"}
)


def leading_imports(source: str) -> list[str]:
    """Modules that a script imports before it does anything else; none if it is no Python."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    names: list[str] = []
    for statement in body:
        if isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom) and not statement.level and statement.module:
            names.append(statement.module)
        elif not _is_docstring(statement):
            break
    return names


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def chosen(names: Iterable[str], extra: Iterable[str]) -> list[str]:
    """Those of `names` that may be imported ahead, and all of `extra`."""
    known = LIBRARIES | getattr(sys, "stdlib_module_names", frozenset())
    return [*(n for n in names if n.partition(".")[0] in known), *extra]


def stand_by() -> tuple[CodeType, dict[str, Any]]:
    """Import, report ready, wait for the order, become the worker: the code to run and
    where. Ends the process if the agent ends first."""
    script, fd, *extra = sys.argv[1:]
    channel = socket.socket(fileno=int(fd))
    with suppress(OSError), open(script, encoding="utf-8") as file:
        _import_ahead(chosen(leading_imports(file.read()), extra), os.path.dirname(script))
    with suppress(OSError):
        channel.send(READY)
    order = _receive(channel)
    if order is None:
        os._exit(0)
    channel.close()
    return _become(order)


def _import_ahead(names: list[str], own_place: str) -> None:
    own = os.path.realpath(own_place)
    for name in names:
        top = name.partition(".")[0]
        if not any(os.path.lexists(os.path.join(own, top + end)) for end in ("", ".py")):
            with suppress(Exception):  # the script will meet the same, and say so
                importlib.import_module(name)


def _receive(channel: socket.socket) -> dict[str, Any] | None:
    text, handles = b"", []
    while not text.endswith(b"\n"):
        try:
            part, fds, _, _ = socket.recv_fds(channel, 65536, 2)
        except OSError:
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


def _become(order: dict[str, Any]) -> tuple[CodeType, dict[str, Any]]:
    for name in set(os.environ) - set(order["env"]):
        del os.environ[name]
    os.environ.update(order["env"])
    script = order["argv"][0]
    sys.argv = list(order["argv"])
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    names, place = sys.modules["__main__"].__dict__, os.path.abspath(script)
    names.pop("warm", None)
    names.update(__file__=place, __cached__=None, __loader__=SourceFileLoader("__main__", place))
    with open(place, "rb") as file:
        return compile(file.read(), place, "exec", dont_inherit=True), names
