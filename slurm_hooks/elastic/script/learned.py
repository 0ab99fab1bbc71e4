"""The libraries that a job's training processes import, so that warm workers import them ahead.

The process of rank 0 writes their names after its first step, into the directory that the job's
nodes share. Imports behind `try:` and inside functions are among them, and so are the modules that
a library imports late. The user's own files are not: only modules of the standard library and of
site-packages are named.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from types import FunctionType
from typing import Any, Optional

from slurm_hooks.elastic.log import suppressed
from slurm_hooks.elastic.private_directory import (
    DirectoryError,
    job_directory,
    read_file,
    write_file,
)

_MOST_BYTES = 1 << 20
_STDLIB = os.path.dirname(os.__file__) + os.sep
_SITES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = __name__.partition(".")[0]
_LEFT_OUT = (_OURS, "__main__", "__mp_main__", "sitecustomize", "usercustomize")


@dataclass(frozen=True)
class Imports:
    """`modules` in the order in which their imports began. `changed` are the variables that changed
    before the first step.
    """

    modules: tuple[str, ...]
    changed: tuple[str, ...] = ()

    def without(self, name: str) -> Imports:
        """Return these imports without this module and the modules in it."""
        kept = (m for m in self.modules if m != name and not m.startswith(f"{name}."))
        return replace(self, modules=tuple(kept))


def is_library(file: str) -> bool:
    """Tell whether a module's file belongs to the standard library or an installed package."""
    return file.startswith(_STDLIB) or any(site in file for site in _SITES)


def _is_users(file: str) -> bool:
    return os.path.isabs(file) and not is_library(file)  # some modules of torch have made-up files


def own_modules() -> list[str]:
    """Return the modules of this process that are neither a library's nor ours."""
    files = ((name, getattr(module, "__file__", None)) for name, module in _modules())
    return [name for name, file in files if isinstance(file, str) and _is_users(file)]


def seen(began: Mapping[str, str]) -> Imports:
    """Return the imports of this process, whose environment was `began`."""
    known = [name for name, module in _modules() if _is_importable(name, module)]
    now = dict(os.environ)
    changed = (n for n in sorted({*began, *now}) if began.get(n) != now.get(n))
    return Imports(tuple(known), tuple(changed))


def tell(began: Mapping[str, str]) -> None:
    """Write the imports of this process for the warm workers of its job. Does not raise.

    The first process of rank 0 does so. Two kinds of programs are left out: those that replace
    functions of their libraries, which may need their own order of imports, and those with a copy
    of an installed library of their own.
    """
    env = os.environ
    with suppressed(Exception, doing="noting the imports of this process"):
        name = _own_name()
        is_first = env.get("RANK") == "0" and not is_told(env, name)
        is_wanted = is_first and env.get("MALLEABLE_WARM") != "0"
        if is_wanted and not _has_replaced() and not _has_a_copy():
            write(env, name, seen(began))


def name_of(program: Sequence[str]) -> str:
    """Return the file's name for a program: `script.py`, or `-m` and a module."""
    text = " ".join(program[:2]) if program[0] == "-m" else os.path.realpath(program[0])
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return f"imports-{digest[:8]}.json"


def _own_name() -> str:
    main: Any = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None:
        return name_of([main.__file__])
    module, _, last = spec.name.rpartition(".")
    return name_of(["-m", module if last == "__main__" else spec.name])


def is_told(env: Mapping[str, str], name: str) -> bool:
    """Tell whether the imports of this program are known."""
    place = job_directory(env)
    return place is not None and os.path.exists(place / name)


def read(env: Mapping[str, str], name: str) -> Optional[Imports]:
    """Return the imports of this program, `None` if they are unknown."""
    errors = OSError, DirectoryError, ValueError, KeyError, TypeError, AttributeError
    with suppressed(*errors, doing="reading which modules to import in advance"):
        if place := job_directory(env):
            raw = json.loads(read_file(place, name, _MOST_BYTES))
            names = [n for n in raw["modules"] if all(part.isidentifier() for part in n.split("."))]
            return Imports(tuple(names), tuple(map(str, raw["changed"])))
    return None


def write(env: Mapping[str, str], name: str, imports: Imports) -> None:
    """Let all nodes of this job know the program's imports. Raises OSError, DirectoryError."""
    text = json.dumps({"modules": imports.modules, "changed": imports.changed}).encode()
    place = job_directory(env)
    if place is None or len(text) > _MOST_BYTES:
        return
    write_file(place, name, text, f"{name}.{env.get('MALLEABLE_FRAGMENT', '')}.{os.getpid()}")


def _modules() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in _LEFT_OUT:
            yield name, module


def _is_importable(name: str, module: Any) -> bool:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    is_itself = getattr(spec, "name", None) == name and getattr(spec, "has_location", False)
    return is_itself and isinstance(origin, str) and is_library(origin)


def _has_replaced() -> bool:
    """Tell whether a library's module has a function of the user's."""
    for name, module in _modules():
        if _is_importable(name, module):
            for value in list(vars(module).values()):
                if type(value) is FunctionType and _is_own(value):
                    return True
    return False


def _has_a_copy() -> bool:
    """Tell whether a module of the user's has the name of an installed module."""
    installed = [path for path in sys.path if is_library(os.path.join(path, ""))]
    tops = {name.partition(".")[0] for name in own_modules()}
    return any(PathFinder.find_spec(top, installed) for top in tops)


def _is_own(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    name = function.__globals__.get("__name__", "")
    return _is_users(file) and name.partition(".")[0] != _OURS
