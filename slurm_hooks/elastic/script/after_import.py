"""Functions that run right after a module has been imported, whoever imports it, and whenever.

What imports and how is left as it is: modules are found and loaded by the interpreter's own means.
It must not import any of these modules itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Optional

from slurm_hooks.elastic.log import suppressed

Then = Callable[[Any], None]


class AfterImport(MetaPathFinder):
    """Calls `then[name]` with the module of that name. What a function raises is passed over."""

    def __init__(self, then: Mapping[str, Then]) -> None:
        self._then = then

    def install(self) -> None:
        """From now on; modules that are there already have their turn at once."""
        for name, then in self._then.items():
            if name in sys.modules:
                _call(then, sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """As the interpreter finds it; nothing for all other modules."""
        then = self._then.get(name)
        spec = PathFinder.find_spec(name, path, target) if then else None
        if then and spec is not None and spec.loader is not None:
            with suppressed(AttributeError, doing=f"getting ready for the import of {name}"):
                _go_on(spec.loader, then)
        return spec


def _go_on(loader: Any, then: Then) -> None:
    """Have this loader of one module call `then`, once, when it has loaded it."""
    plain = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # it is what it was
        plain(module)
        _call(then, module)

    loader.exec_module = exec_module


def _call(then: Then, module: ModuleType) -> None:
    with suppressed(Exception, doing=f"observing {module.__name__}"):
        then(module)
