"""The end of a fragment's run: a death, the end of the training, or an end without a result."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Optional

from slurm_hooks.model.cluster import Slurm
from slurm_hooks.model.job import Fragment, MalleableJob
from slurm_hooks.model.state import FragmentState, Said

SILENT = frozenset({Said.NOTHING, Said.STARTED, Said.WAITING})  # what a run in no round has said
_OWN_CODE = re.compile(r"(?!0:)(?:\d|\d\d|1[01]\d|12[0-7]):0")  # not a signal, not 128 + signal


def requeue_of(fragment: Fragment, slurm: Slurm) -> Optional[datetime]:
    """The moment when the last run of a waiting fragment was requeued. Slurm counts the rest of a
    requeued job from then."""
    return fragment.eligible and fragment.eligible - slurm.requeue_wait


def is_death(fragment: Fragment) -> bool:
    """True if its run ended badly and that is not on record yet.

    It was not asked to leave, had not begun to, and has not given up in a job that continues with a
    single fragment. Exit code 0 is a death too, unless the round reported a finished training, or a
    worker of a pool ran out of work. Where the site's RequeueExit put the fragment back, its exit
    code decides.
    """
    if fragment.is_leaving or fragment.said is Said.LEAVING:
        return False
    if fragment.said is Said.APART and fragment.mark.request.runs_on_one:
        return False
    if fragment.state in (FragmentState.FAILED, FragmentState.LOST):
        return True
    if fragment.state is FragmentState.DONE:
        return fragment.said is not Said.FINISHED and not fragment.mark.request.way.zero_is_idle
    waits = (FragmentState.HELD, FragmentState.SPECIAL, FragmentState.PENDING)
    if fragment.state not in waits or not fragment.has_run:
        return False
    return fragment.state is FragmentState.SPECIAL or bool(_OWN_CODE.fullmatch(fragment.exit_code))


def is_finished(job: MalleableJob) -> bool:
    return any(f.mark.is_finished or is_finish(f, job) for f in job.stirring)


def is_finish(fragment: Fragment, job: MalleableJob) -> bool:
    """True if this fragment's exit means that the training has finished.

    In a job with rounds the report of the round decides. Exit code 0 is no proof there: the last
    command of a script may succeed after torchrun has failed. A job without an agent is an ordinary
    script, and ends with its exit code 0. In a pool only reports count, and the first worker's is
    enough.
    """
    if job.way.zero_is_idle:
        return fragment.said is Said.FINISHED
    if fragment.state is not FragmentState.DONE:
        return False
    return fragment.said is Said.FINISHED or not job.has_agent


def trained_nothing(fragment: Fragment, job: MalleableJob, ran_s: float, patience_s: float) -> bool:
    """Tell whether an ended run lasted at least that long and was in no round."""
    return meets(job) and fragment.said in SILENT and ran_s >= patience_s


def meets(job: MalleableJob) -> bool:
    """Tell whether the job's fragments meet in rounds. The workers of a pool never do."""
    return job.has_agent and job.way.works_as_one
