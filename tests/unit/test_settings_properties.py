"""Settings of any content are read as written, or refused with a line for each fault."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.values import Settings, parse

SECTIONS = {section.name: section.default_factory for section in fields(Settings)}  # type: ignore[misc]
VALUES = st.sampled_from(
    [
        *(
            "0",
            "1",
            "-1",
            "60",
            "1e400",
            "nan",
            "inf",
            "true",
            '""',
            '"x"',
            "[]",
            "[1]",
            '["a", ""]',
        ),
        *("1_000", "1.5", "9" * 30, '"/run/x"', "{a=1}", "2024-01-01", '"prices"', '"\\u0000"'),
    ]
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    lines = []
    names = draw(st.lists(st.sampled_from([*SECTIONS, "other"]), max_size=4, unique=True))
    for name in names:
        known = [f.name for f in fields(SECTIONS[name]())] if name in SECTIONS else ["key"]
        keys = draw(st.lists(st.sampled_from([*known, "unknown"]), max_size=3, unique=True))
        lines += [f"[{name}]", *(f"{key} = {draw(VALUES)}" for key in keys)]
    return "\n".join(lines)


@pytest.mark.parametrize("text", ["[lease]\nlength_s = " + "9" * 5000, "a = " + "[" * 2000, "\0"])
def test_text_that_is_no_settings_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^file"):
        parse(text, "file")


def written(whole: Settings) -> str:
    """The same settings as a file."""
    lines = []
    for section in fields(whole):
        part = getattr(whole, section.name)
        lines.append(f"[{section.name}]")
        values = ((f.name, getattr(part, f.name)) for f in fields(part))
        lines += [f"{key} = {json.dumps(value)}" for key, value in values]
    return "\n".join(lines)


@settings(deadline=None)
@given(documents())
def test_read_settings_can_be_written_and_read_again(text: str) -> None:
    try:
        parsed = parse(text)
    except SettingsError:
        return
    assert parse(written(parsed)) == parsed
