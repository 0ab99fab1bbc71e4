"""Check a job: the reasons for its size, its script and its log.

Findings from a user's own words are guesses, and worded as guesses. No decision depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slurm_hooks.doctor.facts import CannotLook, Facts, known
from slurm_hooks.doctor.finding import Category, Check, Finding, error, note, warning
from slurm_hooks.model.moments import plural
from slurm_hooks.protocol.engines import LAUNCHERS
from slurm_hooks.slurm.mark import parse_mark

_IN_LOG = (
    (
        r"malleable-needs-torch-2\.6|not registered.*rendezvous|rendezvous.*not registered",
        "torch is older than 2.6, or the script overwrites PYTHONPATH instead of extending it",
    ),
    (r"out of memory|OutOfMemoryError|oom-kill", "it ran out of memory"),
    (r"ModuleNotFoundError|ImportError", "a module is missing: is the environment activated?"),
    (r"command not found", "a command is missing: is the environment activated?"),
    (r"Stale file handle", "the file system had trouble (stale file handle)"),
    (r"No space left on device|Disk quota exceeded", "a disk or quota is full"),
    (r"DUE TO PREEMPTION|DUE TO JOB REQUEUE", "a fragment yielded to another job, which is normal"),
    (r"DUE TO TIME LIMIT", "a lease ended before the fragment had left"),
)


def _known(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.job)
    if not seen.words:
        yield error(
            f"Slurm has no job {seen.job_id}",
            advice="it may have ended more than MinJobAge ago: see sacct -j",
        )
    elif not seen.is_malleable:
        yield error(
            f"job {seen.job_id} is an ordinary job in partition {seen.words.get('Partition')}",
            advice="it was submitted without --malleable, or its submit host lacks the plugin: "
            "run `malleable doctor plugstack plugin-file` there",
        )


def _reason(facts: Facts) -> Iterator[Finding]:
    seen = known(facts.job)
    if not seen.is_malleable:
        raise CannotLook("Slurm has no malleable job with this id")
    yield from (warning(line) for line in seen.lacks)
    yield from (note(line) for line in seen.lines if line not in seen.lacks)


def _is_by_torchrun(facts: Facts) -> bool:
    """True if torchrun starts the engine in the job's mark, or if the mark cannot be read."""
    try:
        parsed = parse_mark(known(facts.job).words.get("AdminComment", ""))
    except ValueError:
        return True
    engine = parsed[0].request.kind if parsed else None
    return engine is None or engine.by_torchrun


def _script(facts: Facts) -> Iterator[Finding]:
    text = known(known(facts.job).script)
    plain = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if re.search(r"^\s*(export\s+)?PYTHONPATH=(?!.*\$\{?PYTHONPATH)", plain, re.MULTILINE):
        yield error(
            "the script overwrites PYTHONPATH, so torchrun does not find the rendezvous",
            advice='write: export PYTHONPATH=/your/path:"$PYTHONPATH"',
        )
    if _is_by_torchrun(facts) and not any(word in plain for word in LAUNCHERS):
        yield note(
            "the script does not call torchrun; if no program that it calls does, the job trains "
            "on 1 node",
            advice="start the training with torchrun",
        )
    if re.search(r"torchrun[^\n]*\|\s*\w", plain) and "pipefail" not in plain:
        yield warning(
            "the script pipes torchrun's output, so its exit code is lost",
            advice="add `set -o pipefail` before it",
        )
    if re.search(r"^\s*(source|\.)\s+\S*activate|conda activate|module load", plain, re.M) is None:
        yield note("the script activates no environment, so python and torchrun come from PATH")


def _log(facts: Facts) -> Iterator[Finding]:
    text = known(known(facts.job).log)
    for pattern, meaning in _IN_LOG:
        matches = re.findall(pattern, text)
        if matches:
            yield note(f"{meaning} (the end of its log says so {plural(len(matches), 'time')})")


TABLE = (
    Check(
        "job-known",
        Category.JOB,
        "Slurm knows the job, and it is malleable",
        "An ordinary job is never resized.",
        _known,
    ),
    Check(
        "job-reason",
        Category.JOB,
        "nothing limits the job",
        "These are the lines of `malleable explain`: they name the ends of its holes, and the "
        "reason if it waits.",
        _reason,
    ),
    Check(
        "job-script",
        Category.JOB,
        "its script lets torchrun find the rendezvous, and returns torchrun's exit code",
        "Most jobs that fail at once fail because of their environment.",
        _script,
    ),
    Check(
        "job-log",
        Category.JOB,
        "the end of its log has no known error",
        "This check reads only the last part of the log, and only as the job's own user.",
        _log,
    ),
)
