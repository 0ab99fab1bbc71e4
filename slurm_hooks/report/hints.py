"""Hints on why a job's fragments die, guessed from Slurm's record of their ends and worded as
guesses. The job's output is not read: it belongs to its user.
"""

from __future__ import annotations

import re

from slurm_hooks.model import FragmentState, MalleableJob
from slurm_hooks.model.ends import is_finished
from slurm_hooks.model.moments import plural
from slurm_hooks.protocol.request import MOST_SIZES

_NOT_FOUND = (
    "a command was not found; does the script activate its environment? On a node without the "
    "plugin's line in plugstack.conf, the job's own commands are not found either"
)
_BY_CODE = {
    "1:0": "usually an error in the script",
    "2:0": "srun found no such command, or the command refused its options",
    "13:0": "srun may not execute the command; does `ls -l` show x for you?",
    "126:0": "a command cannot be executed",
    "127:0": _NOT_FOUND,
    "137:0": "killed, usually out of memory",
    "0:9": "killed, usually out of memory",
    "15:53": "Slurm could not start the script: can the nodes write its --output?",
    "0:0": "the script ended with 0 before its training did; does it need `set -o pipefail`?",
}
# No torchrun, or no script, has run.
_NOT_BEGUN = frozenset({"2:0", "13:0", "126:0", "127:0", "15:53"})
_TORCHRUN = (
    "does the output say that the backend 'malleable-needs-torch-2.6-...' is not registered? Then "
    "torch is older than 2.6, the script overwrites PYTHONPATH instead of extending it, or the "
    "node lacks the plugin (an administrator runs `malleable doctor --node` there)"
)


def hints(job: MalleableJob) -> tuple[str, ...]:
    """Lines for people, empty for a job whose fragments live or whose training has finished."""
    stops = [f.mark.stopped for f in job.fragments if f.mark.stopped.startswith("failed-")]
    if not stops and (not job.failures or is_finished(job)):
        return ()
    lines = []
    if not stops:
        lines.append(f"the job has failed {plural(job.failures, 'time')} in a row without progress")
    codes = _codes(job, stops)
    lines += [f"exit code {c}: {_BY_CODE[c]}" for c in sorted(codes) if c in _BY_CODE]
    lines += _sizes(job)
    lines.append("read the last lines of the job's output")
    engine = job.request.kind
    has_begun = not codes or bool(codes - _NOT_BEGUN)
    if engine and engine.by_torchrun and has_begun and not job.has_agent:
        lines.append(_TORCHRUN)
    return tuple(lines)


def _sizes(job: MalleableJob) -> list[str]:
    """The words to write if the script trains only at the sizes that it has reported rates of.

    None for more sizes than a request may name: then its size is hardly the cause.
    """
    request, reports = job.request, (f.telemetry for f in job.fragments if f.telemetry)
    rates = (rate.nodes for report in reports for rate in report.rates)
    sizes = sorted({n for n in rates if request.min_nodes <= n <= request.max_nodes})
    if not 0 < len(sizes) <= MOST_SIZES or not job.way.works_as_one:
        return []
    listed = ",".join(map(str, sizes))
    few = f",sizes={listed}" if len(sizes) > 1 else ""
    return [
        f"it has trained with {listed}; if it cannot train with other sizes, begin --malleable "
        f"with {sizes[0]}-{sizes[-1]}{few} and keep its other words"
    ]


def _codes(job: MalleableJob, stops: list[str]) -> set[str]:
    """Exit codes as `code:signal`, from ended fragments and from the reason of a stop."""
    bad = (FragmentState.FAILED, FragmentState.DONE, FragmentState.SPECIAL)
    good = FragmentState.DONE if job.way.zero_is_idle else None
    ended = {f.exit_code for f in job.fragments if f.state in bad and f.state is not good}
    named = {code for stop in stops for code in re.findall(r"exit-(\d+:\d+)", stop)}
    return ended | named
