"""Set up matplotlib, which is optional, to write files."""

from __future__ import annotations

from typing import Any

from slurm_hooks.errors import MissingProgram


def pyplot() -> Any:
    """matplotlib.pyplot without a screen. Raises MissingProgram if it is not installed."""
    try:
        import matplotlib as mpl  # noqa: PLC0415 (optional, and slow to import)
    except ImportError as error:
        raise MissingProgram(
            "pictures need matplotlib: install python3-matplotlib or slurm-malleable[chart], or "
            "leave out --output, --png and --html"
        ) from error
    mpl.use("Agg")
    from matplotlib import pyplot as plot  # noqa: PLC0415 (after the choice of backend)

    return plot
