"""The value of --malleable: Python reads it as the plugin does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Optional

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slurm_hooks.protocol.engines import ENGINES
from slurm_hooks.protocol.request import RequestError, read

PLUGIN = Path(__file__).resolve().parents[2] / "plugins" / "spank"


@pytest.mark.parametrize(
    ("text", "written", "elements", "fewest"),
    [
        ("2-16", "2-16,unit=1,engine=torchrun", 16, 2),
        ("1-8,unit=gpu", "1-8,unit=gpu,engine=torchrun", 8, 1),
        ("4-8,unit=4gpu", "4-8,unit=4gpu,engine=torchrun", 2, 1),
        ("2-13,sizes=x2", "2-13,unit=1,engine=torchrun,sizes=x2", 8, 2),
        ("0-32,engine=pool", "0-32,unit=1,engine=pool", 32, 0),
        ("2-8,sizes=2,4,8", "2-8,unit=1,engine=torchrun,sizes=2,4,8", 8, 2),
    ],
)
def test_a_request_is_read(text: str, written: str, elements: int, fewest: int) -> None:
    request = read(text)
    assert (request.written, request.elements, request.fewest) == (written, elements, fewest)
    assert read(written) == request


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("4", "begin with MIN-MAX"),
        ("", "begin with MIN-MAX"),
        ("9-4", "MIN is at most MAX"),
        ("0-4", "write 1-4, or add engine=pool"),
        ("1-4,core=2", "is done by the software that a site installs"),
        ("1-4,unit=2", "is done by the software that a site installs"),
        ("1-6,unit=4gpu", "multiples of 4"),
        ("1-4,engine=horse", "the engines are torchrun"),
        ("1-4,colour=red", "there is no key 'colour'"),
    ],
)
def test_a_request_that_cannot_work_is_refused(text: str, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        read(text)


@pytest.fixture(scope="module")
def written_by_the_plugin(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The plugin's own form of a request, empty if it is none."""
    if not shutil.which("cc"):
        pytest.skip("a C compiler is needed")
    library = tmp_path_factory.mktemp("plugin") / "request.so"
    sources = (str(PLUGIN / f"{name}.c") for name in ("request", "sizes", "items", "taken"))
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, *sources], check=True, timeout=120)
    plugin = ctypes.CDLL(str(library))

    def ask(text: str) -> str:
        request, said = ctypes.create_string_buffer(4096), ctypes.create_string_buffer(512)
        if not plugin.request_parse(text.encode(), request, said, len(said)):
            return ""
        assert plugin.request_print(request, said, len(said))
        return said.value.decode()

    return ask


NUMBERS = st.one_of(st.integers(0, 20), st.sampled_from(["", "04", "65535", "65536", "x", "4 "]))
UNITS = st.builds(
    "unit={}{}".format,
    st.sampled_from(["", "0", "1", "2", "04"]),
    st.sampled_from(["", "gpu", "task", "gpus"]),
)
SIZES = st.builds(lambda sizes: "sizes=" + ",".join(map(str, sizes)), st.lists(NUMBERS, max_size=4))
ENGINE = st.sampled_from([f"engine={name}" for name in (*ENGINES, "", "Mpi")])
KEYS = st.lists(
    st.one_of(UNITS, SIZES, ENGINE, st.sampled_from(["sizes=x2", "", "units=2"])), max_size=3
)
TEXTS = st.builds(
    lambda low, high, keys: ",".join([f"{low}-{high}", *keys]), NUMBERS, NUMBERS, KEYS
)


FOR_OTHERS = ("only a pool", "is done by the software")


def written(text: str) -> Optional[str]:
    """Our own form of a request. `None` if the plugin would leave the refusal to others."""
    try:
        return read(text).written
    except RequestError as error:
        return None if any(words in str(error) for words in FOR_OTHERS) else ""


@given(TEXTS)
@example("1-17,sizes=" + ",".join(map(str, range(1, 18))))
@example("2-13,sizes=x2")
@example("0-8,engine=pool,sizes=x2")
@example("2-13,sizes=x2,unit=2gpu")
def test_python_reads_what_the_plugin_reads(
    written_by_the_plugin: Callable[[str], str], text: str
) -> None:
    ours = written(text)
    assert ours is None or ours == written_by_the_plugin(text)
