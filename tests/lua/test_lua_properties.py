"""Requests of any content, under every Lua that is there: a request or faults, never an error."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz import plugin
from fuzz.peer import RefusedError

HERE = Path(__file__).resolve().parent
MODULES = HERE.parent.parent / "plugins" / "lua"
some = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
NUMBERS = st.sampled_from(["0", "1", "2", "4", "16", "64", "1024", "65535", "65536", "99999", "-1"])
OPTIONS = st.builds(
    "{}={}".format,
    st.sampled_from(
        ["unit", "engine", "launch", "core", "core_end", "sizes", "prefer", "min_run", "other", ""]
    ),
    st.sampled_from(
        [
            "1",
            "2",
            "3",
            "0",
            "gpu",
            "2gpu",
            "3task",
            "torchrun",
            "torchft",
            "pool",
            "srun",
            "x2",
            "2,4,16",
            "finish",
            "10m",
            "",
            "%s",
            "9" * 20,
        ]
    ),
)
REQUESTS = st.builds(
    lambda low, high, options: ",".join([f"{low}-{high}", *options]).encode(),
    NUMBERS,
    NUMBERS,
    st.lists(OPTIONS, max_size=3),
)


def answers(lua: str, requests: list[bytes]) -> list[list[str]]:
    done = subprocess.run(
        [lua, str(HERE / "request_lines.lua"), str(MODULES)],
        input="".join(f"{text.hex()}\n" for text in requests),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@some
@given(requests=st.lists(REQUESTS | st.binary(max_size=20), min_size=1, max_size=50))
def test_any_request_is_read_or_refused(lua: str, requests: list[bytes]) -> None:
    rows = answers(lua, requests)
    assert len(rows) == len(requests)
    for word, *words in rows:
        assert word in ("request", "faults")
        if word == "request":
            low, high, unit = map(int, words[:3])
            is_pool = words[3] == "pool"
            is_node, fragments = words[4] == "node", int(words[5])
            assert 1 <= unit <= high <= (1024 if is_node else 500)
            assert (0 if is_pool else unit) <= low <= high
            assert low % unit == high % unit == 0
            assert 1 <= fragments <= high // unit
            assert fragments <= (500 if is_pool and (unit == 1 or not is_node) else 64)
            assert not is_node or fragments == high // unit


@some
@given(
    sizes=st.lists(
        st.tuples(
            st.integers(0, 8),
            st.integers(1, 8),
            st.integers(1, 4),
            st.sampled_from(["", "gpu", "task"]),
        ),
        min_size=1,
        max_size=50,
    )
)
def test_a_request_that_the_site_allows_is_read_as_written(
    lua: str, sizes: list[tuple[int, int, int, str]]
) -> None:
    """Gangs have a least size, pools need no such size."""
    wanted = [
        (low * unit, (low + more) * unit, unit, "torchrun" if low else "pool", word or "node")
        for low, more, unit, word in sizes
    ]
    texts = [
        f"{low}-{high},unit={unit}{word.replace('node', '')},engine={name}"
        for low, high, unit, name, word in wanted
    ]
    rows = answers(lua, [text.encode() for text in texts])
    assert rows == [
        ["request", *map(str, numbers), str(numbers[1] // numbers[2])] for numbers in wanted
    ]


SIZES = st.sampled_from(["1", "2", "3", "4", "5", "6", "8", "12", "16", "007", "0", "x", "-1", ""])
WISHES = st.one_of(
    st.builds("core={}".format, SIZES),
    st.builds("prefer={}".format, SIZES),
    st.builds(",".join, st.lists(SIZES, min_size=1, max_size=5)).map("sizes={}".format),
    st.sampled_from(["sizes=x2", "sizes=2,4,8,16", "sizes=2,4", "sizes=1,2,4,8", "sizes=x2,4"]),
    st.sampled_from(["core_end=stay", "core_end=finish", "core_end=x", "core-end=stay", "sizes"]),
    st.builds("min_run={}{}".format, st.sampled_from(["1", "0", "12", "13", "43200", "65535"]),
              st.sampled_from(["", "s", "m", "h", "d", "hm"])),
    st.sampled_from(["unit=2", "unit=1", "unit=gpu", "unit=2task", "unit=0", "launch=srun", "8"]),
    st.sampled_from(["engine=torchrun", "engine=" + "torchrun" * 5, "8,16", ""]),
)  # fmt: skip


def asked(low: str, high: str, between: list[str], cut: slice, wishes: list[str]) -> str:
    sizes = ",".join([low, *between, high][cut])
    return ",".join([f"{low}-{high}", *([f"sizes={sizes}"] if between else []), *wishes])


ASKED = st.builds(
    asked,
    st.sampled_from(["1", "2", "2", "2", "3", "4"]),
    st.sampled_from(["4", "8", "8", "13", "16", "16", "1"]),
    st.lists(st.sampled_from(["2", "3", "4", "6", "8"]), max_size=3),
    st.sampled_from([slice(None), slice(None), slice(1, None), slice(-1)]),
    st.lists(WISHES, max_size=3),
)


def is_taken(text: str) -> bool:
    try:
        plugin.read(text)
    except RefusedError:
        return False
    return True


@pytest.mark.skipif(not all(map(shutil.which, ("make", "cc"))), reason="a C compiler is needed")
@settings(some, max_examples=60)
@given(requests=st.lists(ASKED, min_size=20, max_size=50))
def test_the_plugin_and_the_controller_take_the_same_requests(
    lua: str, requests: list[str]
) -> None:
    rows = answers(lua, [text.encode() for text in requests])
    for text, (word, *_) in zip(requests, rows):
        assert is_taken(text) == (word == "request"), text
