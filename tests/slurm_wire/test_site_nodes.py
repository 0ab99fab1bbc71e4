"""Host lists in the settings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_hooks.errors import SettingsError
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.site_nodes import with_host_lists
from slurm_hooks.slurm.text import MOST_NAMES


def unfolded(*lists: str) -> tuple[str, ...]:
    return with_host_lists(replace(Settings(), mode=Mode("canary", nodes=lists))).mode.nodes


def test_lists_are_unfolded_once_each() -> None:
    assert unfolded("n[01-03]", "n02", "gpu[1,3]-a") == ("gpu1-a", "gpu3-a", "n01", "n02", "n03")


@pytest.mark.parametrize(
    "text",
    [
        "n[1-999999999]",
        "n[1-2000]m[1-2000]",
        f"n[0-{MOST_NAMES}]",
        "n[1-100000],m[1-100000]",
    ],
)
def test_a_slip_of_the_pen_takes_no_memory(text: str) -> None:
    with pytest.raises(SettingsError, match="more than 131072 names"):
        unfolded(text)


def test_text_that_is_no_list_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be read as a host list"):
        unfolded("n[1-")
