"""Same snapshot, same plan: in any process, for any order of names in a Python set."""

from __future__ import annotations

import os
import subprocess
import sys

HERE = os.path.dirname(__file__)
PROGRAM = """
import json
from hypothesis import HealthCheck, given, settings
from clusters import clusters
from build import no_clock
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.model.snapshot.codec import to_data

@settings(
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(clusters(with_cores=True))
def tell(slurm):
    seen = observe(slurm, ["malleable"])
    plan = make_plan(seen, Settings(mode=Mode("on")), no_clock)
    print(json.dumps([to_data(seen.jobs), to_data(plan)]))

tell()
"""


def plans(hash_seed: int) -> list[str]:
    """The jobs and the plans of the same sixty clusters, from a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_the_order_of_a_set_makes_no_difference() -> None:
    first = plans(1)
    assert len(first) == 60
    assert first == plans(2)
