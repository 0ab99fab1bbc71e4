"""Doctor calls exactly the releases tested on which the plugin works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_hooks.slurm.releases import TESTED, is_tested, known_releases

HEADER = Path(__file__).resolve().parents[2] / "plugins" / "spank" / "releases.h"


def test_names() -> None:
    assert is_tested((22, 5, 8))
    assert not is_tested((23, 2))
    assert not is_tested(())
    assert "22.05" in known_releases()


@pytest.mark.skipif(not HEADER.exists(), reason="this plugin works with one release")
def test_the_plugin_has_the_same_list() -> None:
    listed = re.search(r"define MALLEABLE_TESTED ([\d, ]+)", HEADER.read_text())
    assert listed
    numbers = {int(number) for number in listed.group(1).split(",")}
    assert numbers == {100 * year + month for year, month in TESTED}
