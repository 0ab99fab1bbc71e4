"""Settings: every key, every fault at once."""

from __future__ import annotations

import contextlib
import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.file import load
from slurm_hooks.settings.values import Settings, parse, state_dir_in

ROOT = Path(__file__).parents[2]
KEYS = [
    (section.name, key)
    for section in fields(Settings)
    for key in fields(getattr(Settings(), section.name))
]
NUMBERS = [(section, key) for section, key in KEYS if "low" in key.metadata]


def faults(text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        parse(text, "file")
    return caught.value.faults


def set_key(section: str, key: str, value: object) -> str:
    return f"[{section}]\n{key} = {value}\n"


def test_the_documented_file_shows_the_defaults() -> None:
    text = (ROOT / "etc/malleable.toml").read_text()
    assert parse(text) == Settings()
    for section, key in KEYS:
        assert f"\n{key.name} = " in text, f"{section}.{key.name} is not documented"


def test_an_empty_file_is_the_defaults() -> None:
    assert parse("") == Settings()
    assert parse("").mode.level == "observe"


@pytest.mark.parametrize(("section", "key"), NUMBERS, ids=lambda x: getattr(x, "name", x))
def test_range_of_a_number(section: str, key: Any) -> None:
    low, high = key.metadata["low"], key.metadata["high"]
    whole = key.type == "int"
    contradictions = ("must not be longer", "must be shorter", "must be longer")
    for good in (low, high):
        text = set_key(section, key.name, int(good) if whole else float(good))
        with contextlib.suppress(SettingsError):
            parse(text)
            continue
        assert all(any(word in fault for word in contradictions) for fault in faults(text))
    bad = [low - 1, "true", '"5"', "nan", "inf", "[1]"]
    bad += [high + 1] if high < math.inf else []
    bad += [low + 0.5] if whole else []
    for value in bad:
        (fault, *_) = faults(set_key(section, key.name, value))
        assert fault.startswith(f"file: {section}.{key.name} = ")
        assert "must be" in fault


@pytest.mark.parametrize(
    "text",
    [
        "[site]\npartitions = []",
        "[site]\npartitions = [1]",
        '[site]\npartitions = [""]',
        '[site]\noperators = "root"',
        '[mode]\nlevel = "magic"',
        "[mode]\nlevel = []",
        '[tick]\nlock = "relative"',
        "[tick]\nslurm_bin = 3",
        "[tick]\nlock = { a = 1 }",
        "[lease]\nlength_s = 60\nshortest_hole_s = 61",
        "[lease]\nshortest_hole_s = 60\n[tick]\nevery_s = 45",
        '[site]\npart_nodes = "malleable"',
        '[site]\npart_nodes = "parts"',
        '[site]\npart_nodes = "low"\nqos = "low"',
        "site = 3",
        "[odd]",
        "[site]\nodd = 1",
        "[site",
        "[site]\n[site]",
        '[tick]\nlock = ""',
    ],
)
def test_a_single_fault(text: str) -> None:
    (fault,) = faults(text)
    assert fault.startswith("file: ")


def test_all_faults_at_once() -> None:
    complaints = faults(
        "odd = 1\n[wrong]\n[lease]\nlength_s = 1\nnotice_s = 0\nspeed = 1\n"
        '[mode]\nlevel = "x"\n[site]\npartitions = []\n'
    )
    assert len(complaints) == 7
    assert all(fault.startswith("file: ") for fault in complaints)


def test_the_places_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.toml"
    path.write_text("[lease]\nlength_s = 300\n")
    monkeypatch.setenv("MALLEABLE_SETTINGS", str(path))
    assert load().lease.length_s == 300
    other = tmp_path / "b.toml"
    other.write_text("")
    assert load(other) == Settings()
    monkeypatch.setattr("slurm_hooks.settings.file.DEFAULT_PATH", tmp_path / "none.toml")
    monkeypatch.delenv("MALLEABLE_SETTINGS")
    assert load() == Settings()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"a\.toml"):
        load(path)


def test_a_key_of_an_earlier_version_names_what_to_write_instead() -> None:
    (fault,) = faults('[mode]\nnodes = ["n1"]\n')
    assert fault.endswith(
        "unknown key mode.nodes; write Nodes=NAMES at a partition of malleable jobs only, in "
        "slurm.conf"
    )


@pytest.mark.parametrize("line", ['wake = "/run/x"', "shortest_s = 5", "share = 0.02"])
def test_the_keys_of_a_pace_that_went_are_to_be_deleted(line: str) -> None:
    (fault,) = faults(f"[tick]\n{line}\n")
    assert fault.endswith("; delete this line: ticks come every tick.every_s")


def test_a_share_of_0_is_refused() -> None:
    """It could mean no limit, as 0 does for max_nodes, or that every fragment has to leave."""
    (fault,) = faults("[mode]\nmax_share = 0\n")
    assert "from 0.001 to 1" in fault


def test_the_place_of_the_switch_is_known_from_wrong_settings() -> None:
    assert state_dir_in('[tick]\nstate_dir = "/x"\nevery_s = "often"\n[a]\n') == "/x"
    for text in ("", "tick = 1", "[tick]\nstate_dir = 5", '[tick]\nstate_dir = "x"'):
        assert state_dir_in(text) == "/var/lib/slurm-malleable"
