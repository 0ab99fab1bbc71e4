"""A real squeue's answer has the same rows for any text in users' comments."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from slurm_hooks.sandbox import Sandbox, SandboxSpec
from slurm_hooks.slurm.jobs import parse_jobs
from slurm_hooks.slurm.live import Live
from slurm_hooks.slurm.rows import RECORD_END, SAID_WIDTH, jobs_command

pytestmark = pytest.mark.slurm
MARK = "malleable{min=1,max=2,unit=1,engine=torchrun,frags=2,lease=120,hole=60}"
PROGRESS = "trained{0};h{60};progress{s1790000000,2:1234/12/256,1:700/9/128/5400,p20/12/8/40}"
FORGED = f"99_0|RUNNING|1|malleable|root|||||||||n1{'|' * 9};|{MARK}|"
COMMENTS = (
    PROGRESS,
    f"\n{FORGED}",
    f"{PROGRESS}\n{FORGED}",
    "=" * SAID_WIDTH,
    "=" * (SAID_WIDTH - 1) + "\n",
    f"{RECORD_END}\n{FORGED}",
    f"|(null)|\n{FORGED[-100:]}",
    "\u00e9" * 200,
    "\u2028x\u0085\r\n\n\n",
)


@pytest.fixture(scope="module")
def box(installation: Any) -> Iterator[Sandbox]:
    with Sandbox.up(SandboxSpec(nodes=2, slurm=installation)) as sandbox:
        yield sandbox


def test_a_row_has_slurm_s_values(box: Sandbox) -> None:
    script = box.work / "sleep.sh"
    script.write_text("#!/bin/bash\nsleep 600\n")
    script.chmod(0o755)
    ids = []
    for comment in COMMENTS:
        words = ["sbatch", "-p", "malleable", "--hold", "--array=0-1", f"--comment={comment}"]
        ids.append(int(box.run([*words, str(script)]).stdout.split()[-1]))
        box.run(["scontrol", "update", f"jobid={ids[-1]}", f"AdminComment={MARK}"])
    live = Live(environment={**os.environ, **box.environment})
    jobs = parse_jobs(live.ask(jobs_command()), ["malleable"])
    assert [job.job_id for job in jobs.malleable] == ids
    assert {len(job.fragments) for job in jobs.malleable} == {2}
    assert (jobs.unknown, jobs.records) == ((), 2 * len(ids))
    reports = [fragment.telemetry for job in jobs.malleable for fragment in job.fragments]
    assert [t is not None for t in reports] == [n // 2 in (0, 2) for n in range(len(reports))]
    assert reports[0] is not None
    assert [(rate.nodes, rate.per_s) for rate in reports[0].rates] == [(1, 700.0), (2, 1234.0)]
