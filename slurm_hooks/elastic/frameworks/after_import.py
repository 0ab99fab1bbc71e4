"""Call a function with a module as soon as its import has ended, without importing it.

Standard library only, and cheap: it is in place in every process of a job that imports torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from slurm_hooks.elastic.log import say, suppressed

Then = Callable[[ModuleType], None]


class AfterImport:
    """A finder that finds nothing itself: of the modules that are named in `then` it has the others
    find the spec, and adds to their loader. What a function raises is a line in the
    job's log."""

    def __init__(self, then: Mapping[str, Then]) -> None:
        self._then = dict(then)

    def install(self) -> None:
        """From now on; modules that are imported already get their call at once, those whose
        import is under way at its end."""
        sys.meta_path.insert(0, self)
        for name in self._then:
            module = sys.modules.get(name)
            spec = getattr(module, "__spec__", None)
            if module is None:
                continue
            if getattr(spec, "_initializing", False):
                _at_its_end(spec, partial(self._call, module))
            else:
                self._call(module)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        if name not in self._then:
            return None
        spec = self._found_by_others(name, path, target)
        loader: Any = getattr(spec, "loader", None)
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self._call(module)

        loader.exec_module = exec_module
        return spec

    def _found_by_others(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _call(self, module: ModuleType) -> None:
        try:
            self._then[module.__name__](module)
        except Exception as error:  # a version that nobody has seen yet
            say(f"{module.__name__} is left as it is: {type(error).__name__}: {error}")


def _at_its_end(spec: Any, call: Callable[[], None]) -> None:
    """The import system marks the end of an import in the spec, where it can be seen."""

    class Ending(type(spec)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "_initializing" and not value:
                self.__class__ = type(spec).__mro__[1]
                call()

    with suppressed(TypeError, doing="waiting for an import to end"):
        spec.__class__ = Ending
