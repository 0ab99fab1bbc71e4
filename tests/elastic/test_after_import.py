"""Functions that run once a module has been imported."""

from __future__ import annotations

import importlib
import importlib.abc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from slurm_hooks.elastic.script.after_import import AfterImport


@pytest.fixture
def place(module_dir: Path) -> Iterator[Path]:
    """A directory of modules."""
    finders = list(sys.meta_path)
    yield module_dir
    sys.meta_path[:] = finders


def test_a_function_is_called_with_a_module_once_its_import_has_ended(place: Path) -> None:
    (place / "first_one.py").write_text("LAST = 1\n")
    (place / "second_one.py").write_text("LAST = 1\n")
    called = []
    then = {name: lambda module: called.append(module.LAST) for name in ("first_one", "second_one")}
    importlib.import_module("first_one")
    AfterImport(then).install()
    assert called == [1]
    importlib.import_module("second_one")
    importlib.import_module("second_one")
    assert called == [1, 1]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_one")


def test_an_import_that_is_under_way_is_waited_for(place: Path) -> None:
    (place / "outer_one.py").write_text("import inner_one\nLAST = 1\n")
    (place / "inner_one.py").write_text("import builtins\nbuiltins.install_after_import()\n")
    called = []
    finder = AfterImport({"outer_one": lambda module: called.append(module.LAST)})
    vars(__import__("builtins"))["install_after_import"] = finder.install
    try:
        importlib.import_module("outer_one")
    finally:
        del vars(__import__("builtins"))["install_after_import"]
    assert called == [1]
    assert type(sys.modules["outer_one"].__spec__).__name__ == "ModuleSpec"


def test_an_error_in_a_callback_is_passed_over(place: Path) -> None:
    (place / "third_one.py").write_text("")
    AfterImport({"third_one": lambda module: 1 / 0}).install()
    importlib.import_module("third_one")


def test_other_finders_than_the_interpreter_s_own_are_asked(place: Path) -> None:
    """As of packages that are installed for editing."""
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "fourth_one.py").write_text("LAST = 1\n")

    class Editable(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
            file = place / "elsewhere" / f"{name}.py"
            return spec_from_file_location(name, file) if file.exists() else None

    sys.meta_path.insert(0, Editable())
    called = []
    AfterImport({"fourth_one": lambda module: called.append(module.LAST)}).install()
    importlib.import_module("fourth_one")
    assert called == [1]


def test_two_callbacks_for_the_same_module_both_run(place: Path) -> None:
    (place / "fifth_one.py").write_text("")
    called = []
    for n in range(2):
        AfterImport({"fifth_one": lambda module, n=n: called.append(n)}).install()
    importlib.import_module("fifth_one")
    assert sorted(called) == [0, 1]
