"""How long a fragment that Slurm ends may take to write down what it has: the site's
`lease.farewell_s`. The job that wants its node waits so long at most.
"""

from __future__ import annotations

from collections.abc import Mapping

FAREWELL_S = 2.0


def farewell_s(env: Mapping[str, str]) -> float:
    """Seconds from SIGTERM on, by MALLEABLE_FAREWELL_S; what is no number of seconds up to a
    minute is as if it were missing."""
    try:
        value = float(env.get("MALLEABLE_FAREWELL_S", ""))
    except ValueError:
        return FAREWELL_S
    return value if 0 <= value <= 60 else FAREWELL_S
