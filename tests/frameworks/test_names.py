"""The private names that we use of each library, in the version that is installed."""

from __future__ import annotations

import pytest

from slurm_hooks.elastic import names

pytestmark = [
    pytest.mark.frameworks,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(
    ("library", "wanted"),
    [
        ("torch", names.TORCH),
        ("lightning.pytorch", names.lightning("lightning.pytorch")),
        ("pytorch_lightning", names.lightning("pytorch_lightning")),
        ("transformers", names.TRANSFORMERS),
        ("accelerate", names.ACCELERATE),
    ],
)
def test_the_installed_library_has_all_names(library: str, wanted: names.Names) -> None:
    pytest.importorskip(library, reason="not installed: make test-frameworks")
    assert names.missing(wanted) == []
