"""Fixtures that several parts' tests use: above all, a real Slurm with this project in it.

On a host without Slurm, tests on Slurm are skipped with a note of the packages to install. A
failing test has the end of slurmctld's log in its report.

Generated examples are the same in every run, so that a landed change passed for a reason. `make
search` searches among new examples.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from kept_sandbox import KeptSandbox, end_with_us
from slurm_hooks.errors import MissingProgram
from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.sandbox.installation import Installation, find_installation

pytest_plugins = ["again"]
LOG_LINES = 60
LONG = ("promises", "trial")  # folders
# A run that is ended lets its fixtures end their processes.
signal.signal(signal.SIGTERM, signal.default_int_handler)
T = TypeVar("T")

# No deadline: an example that is slow on a busy host is no fault.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", derandomize=False, print_blob=True, deadline=None)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "repeatable")
hypothesis.settings.load_profile(PROFILE)
if PROFILE == "repeatable":
    # Hypothesis draws the constants of the modules that happen to be imported, which depends on the
    # tests that ran before. So it learns from no other test, and draws the same wherever it runs.
    providers._get_local_constants = lambda: providers._local_constants


# Names of the threads that were started, of which most have ended.
_threads: list[str] = []
_start = threading.Thread.start


def _start_and_count(thread: threading.Thread) -> None:
    _threads.append(thread.name)
    _start(thread)


threading.Thread.start = _start_and_count  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def leaks_of_threads() -> Iterator[None]:
    """A test with threads that leaves something open fails itself, and no innocent later test."""
    before = len(_threads)
    yield
    if len(_threads) > before:
        gc.collect()


@pytest.fixture
def module_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory on the import path. After the test, `sys.modules` has no module of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.fixture(scope="session")
def installation() -> Installation:
    """This host's Slurm. Without a Slurm the test is skipped."""
    try:
        return find_installation()
    except MissingProgram as error:
        pytest.skip(f"Slurm is not installed: {error}")


def project_spec_or_skip(**overrides: Any) -> SandboxSpec:
    from slurm_hooks.sandbox.project import project_spec  # noqa: PLC0415  (builds the plugin)

    try:
        return project_spec(**overrides)
    except MissingProgram as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def kept_sandbox(installation: Installation) -> Iterator[KeptSandbox]:
    project_spec_or_skip(slurm=installation)  # builds the plugin, or skips
    kept = KeptSandbox(nodes=4)
    yield kept
    kept.down()


@pytest.fixture(scope="module")
def sandbox(kept_sandbox: KeptSandbox, request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Four nodes with plugin, submit script and hooks, which the tests leave unchanged."""
    yield kept_sandbox.take()
    kept_sandbox.check(request.node.nodeid)


@pytest.fixture
def bench(sandbox: Sandbox) -> Iterator[Any]:
    """Malleable jobs and ticks on the shared sandbox, which the test leaves without a job."""
    from promises.bench import Bench  # noqa: PLC0415  (some environments run tests of a job alone)

    bench = Bench(sandbox).patient()
    yield bench
    bench.cancel_all()


@pytest.fixture(scope="session")
def pyslurm_of_this_slurm(installation: Installation) -> str:
    """The version of pyslurm that fits this host's Slurm. Without pyslurm the test is skipped.

    It is not imported, because the import reads a slurm.conf, and ends this process without that
    file.
    """
    try:
        version = metadata.version("pyslurm")
    except metadata.PackageNotFoundError:
        pytest.skip("pyslurm is not installed: make test-pyslurm SLURM_SOURCE=...")
    if tuple(map(int, version.split(".")[:2])) != installation.version[:2]:
        pytest.skip(f"pyslurm {version} is not for Slurm {installation.version_text}")
    return version


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadscope` workers share single tests (see `sharing`)."""
    if config.getoption("dist") != "loadscope":
        return None
    from sharing import SingleTests  # noqa: PLC0415  (some environments have no xdist)

    return SingleTests(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each stretch of a run on several workers its share of every kind of test.

    Tests on a real Slurm wait, tests with torch wait and compute, and the others compute. Tests of
    a minute come first, so that no worker waits for the last of them.
    """
    if not hasattr(config, "workerinput"):
        return
    kinds: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = next(filter(item.get_closest_marker, ("slurm", "torch")), "")
        kinds.setdefault(mark, []).append(item)
    for each in kinds.values():
        each.sort(key=lambda item: item.path.parent.name not in LONG)
    items[:] = evenly(*kinds.values())


def evenly(*lists: list[T]) -> list[T]:
    """All lists in their order, each spread evenly over the whole."""
    places = [(n / len(each), each[n]) for each in lists for n in range(len(each))]
    return [item for _, item in sorted(places, key=lambda place: place[0])]


@dataclass
class SandboxFactory:
    """Starts a sandbox from fields of SandboxSpec. Remembers sandboxes to end them."""

    make_spec: Callable[..., SandboxSpec]
    boxes: list[Sandbox] = field(default_factory=list)

    def __call__(self, **overrides: Any) -> Sandbox:
        self.boxes.append(end_with_us(Sandbox.up(self.make_spec(**overrides))))
        return self.boxes[-1]

    def down(self) -> None:
        for box in self.boxes:
            box.down()


@pytest.fixture
def fresh_sandbox(installation: Installation) -> Iterator[SandboxFactory]:
    """Starts sandboxes with this project in them, which end with the test."""
    factory = SandboxFactory(partial(project_spec_or_skip, slurm=installation))
    yield factory
    factory.down()


@pytest.fixture(scope="module")
def new_site(installation: Installation) -> Iterator[SandboxFactory]:
    """Like fresh_sandbox, for sandboxes that the tests of a module share."""
    factory = SandboxFactory(partial(project_spec_or_skip, slurm=installation))
    yield factory
    factory.down()


@pytest.fixture
def bare_sandbox(installation: Installation) -> Iterator[SandboxFactory]:
    """Like fresh_sandbox, but Slurm alone: no part of this project runs in it."""
    factory = SandboxFactory(partial(SandboxSpec, slurm=installation))
    yield factory
    factory.down()


@pytest.fixture
def plain_sandbox(installation: Installation) -> Iterator[SandboxFactory]:
    """Like bare_sandbox, as a site that knows nothing of this project: `malleable sandbox up
    --plain`.
    """
    from slurm_hooks.sandbox.project import plain_spec  # noqa: PLC0415  (see project_spec_or_skip)

    factory = SandboxFactory(partial(plain_spec, slurm=installation))
    yield factory
    factory.down()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if not report.failed or item.get_closest_marker("slurm") is None:
        return
    for box in _boxes(getattr(item, "funcargs", {})):
        lines = box.log("slurmctld").splitlines()[-LOG_LINES:]
        report.sections.append((f"slurmctld of {box.name}, last lines", "\n".join(lines)))


def _boxes(arguments: dict[str, Any]) -> list[Sandbox]:
    """The sandboxes that a test was given or has started."""
    boxes = [value for value in arguments.values() if isinstance(value, Sandbox)]
    factories = [value for value in arguments.values() if isinstance(value, SandboxFactory)]
    return boxes + [box for factory in factories for box in factory.boxes if box.dir.exists()]
