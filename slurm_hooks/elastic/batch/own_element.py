"""The only code that acts on the fragment's own element in Slurm. It writes the fragment's standing
into the Comment, and requeues the element when the fragment leaves: held, where ticks come.

The agent of a fragment's first node reports. The other agents only wait where it waits. Outside of
a job array there is no report.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from typing import Optional

from slurm_hooks.elastic.batch import job_comment
from slurm_hooks.elastic.batch.command import answer, ask
from slurm_hooks.elastic.batch.comment_writer import (
    CONFIRM_S,
    GATHER_S,
    LOOK_S,
    TURN_S,
    Stand,
    writer_of,
)
from slurm_hooks.elastic.batch.expected import ArrayFacts, request, startable
from slurm_hooks.elastic.batch.lease import ask_all
from slurm_hooks.elastic.batch.progress_entry import Progress, earlier, entry
from slurm_hooks.elastic.batch.standing import (
    element,
    hold_request,
    is_held,
    is_noticed,
    is_other_run,
    is_reporter,
    notice_request,
    run_of,
    run_request,
)
from slurm_hooks.elastic.log import debug, say, suppressed
from slurm_hooks.elastic.signals import SignalListener
from slurm_hooks.protocol.comment import Loss, Standing, parse
from slurm_hooks.protocol.request import SELF_VARIABLE

AGAIN_S = 5.0  # between two looks for the end, while a requeue is refused
START_S = 5.0
FRESH_S = 20.0  # for so long the answer at the start is as good as a new answer
FINISH_S = 60.0
SPREAD_S = 0.25  # for each fragment: all join at the same moment, and a site may limit requests
SPREAD_MOST_S = 15.0  # well below `failures.join_s`, after which its absence is reported
SPREAD_LIKE = 8  # fragments, if their number is unknown
_ERRORS = OSError, subprocess.SubprocessError
_SILENT = (
    "{missing} not found in PATH, perhaps because this is a container: without them the job cannot "
    "report to Slurm and is limited to 1 fragment; add Slurm's commands to the container"
)


class OwnElement:
    """Methods do not raise. They are cheap except `report_started`, `report_finished`,
    `report_apart`, `is_outlived`,
    `was_noticed` and `put_back`.
    """

    def __init__(self, env: Mapping[str, str], signals: SignalListener) -> None:
        self._env = env
        self._element = element(env)
        self._is_reporter = bool(self._element) and is_reporter(env)
        self._run = run_of(env)
        self._signals = signals
        own = env.get(SELF_VARIABLE)  # a job within such a job has the variable, too
        self._has_tick = not own or own != env.get("SLURM_JOB_ID")
        self._writer = writer_of(self._element)
        self._standing: Optional[Standing] = None  # reported last
        self._told_progress: Optional[Progress] = None
        self._facts = ArrayFacts()
        self._asked_at = float("-inf")
        self._has_trained = False
        self._has_complained = False
        self._is_mute = False  # Slurm's commands were missing at the start

    def take_facts(self) -> Optional[ArrayFacts]:
        """Return Slurm's answer about this job's array at the start. It is `None` without an
        answer, or if that is too old.
        """
        is_fresh = time.monotonic() - self._asked_at < FRESH_S
        return self._facts if is_fresh and self._facts.ends else None

    @property
    def told_loss(self) -> Optional[Loss]:
        """The cost of an interruption, as the Comment says for certain."""
        return self._writer.newest.loss

    @property
    def told_progress(self) -> Optional[Progress]:
        """How fast the job trains, as the Comment says for certain."""
        return self._told_progress

    @property
    def earlier_progress(self) -> Optional[Progress]:
        """How fast the job trained in earlier runs of this element, as the Comment said."""
        return earlier(parse(self._facts.comment or "").progress)

    def report_started(self) -> None:
        """This process is an agent, and its training is about to begin.

        It may give up at any moment, so this returns when that is recorded, or after START_S. After
        that, or without Slurm's commands, it is written in the background. This happens once a
        training. The reports of a training that goes on stay.
        """
        self._has_trained = self._writer.has_stood = False
        if not self._is_reporter or self._standing not in (None, Standing.FINISHED):
            return
        self._standing = Standing.STARTED
        missing = job_comment.missing_commands()
        self._is_mute = bool(missing)
        if missing:
            say(_SILENT.format(missing=" and ".join(missing)))
        deadline = time.monotonic() + START_S
        comment = self._ask()
        while time.monotonic() < deadline:
            try:
                self._write(Standing.STARTED, deadline - time.monotonic(), comment)
                return
            except OSError as error:
                debug("writing `started`", error)
                break
            except subprocess.SubprocessError as error:
                debug("writing `started`", error)
                comment = None
                time.sleep(CONFIRM_S)
        self.report(Standing.STARTED)

    def _ask(self) -> Optional[str]:
        """Ask Slurm a single question for all that is wanted at the start. Return the Comment."""
        self._facts = ask_all(self._env)
        self._asked_at = time.monotonic()
        return self._facts.comment

    def report(self, standing: Standing) -> None:
        """Write it in the background, again and again until it is recorded or replaced."""
        if not self._is_reporter:
            return
        self._standing = standing
        has_time = standing in (Standing.JOINED, Standing.TRAINED)
        self._writer.want(
            "standing",
            Stand(standing, self._run),
            in_s=self._spread_s() if has_time else 0.0,
            check_s=LOOK_S if has_time else CONFIRM_S,
        )

    def _spread_s(self) -> float:
        fragments = len(set(self._facts.wanted)) or SPREAD_LIKE
        return random.uniform(0.0, min(SPREAD_MOST_S, SPREAD_S * fragments))

    def report_trained(self) -> None:
        """There is evidence of progress. Reported once a run, by a leaving agent as its last
        report.
        """
        if self._has_trained:
            return
        self._has_trained = True
        if self._standing is not Standing.LEAVING:
            self.report(Standing.TRAINED)

    def report_loss(self, loss: Optional[Loss]) -> None:
        """Report the cost of an interruption, or with `None` that it is unknown.

        It is written in the background. `told_loss` says whether it stands there.
        """
        if self._is_reporter:
            self._writer.want("loss", loss, in_s=GATHER_S)

    def report_progress(self, progress: Progress) -> None:
        """Report how fast the job trains. It is written in the background. `told_progress` says
        whether it stands there.
        """
        if self._is_reporter:
            note = partial(setattr, self, "_told_progress", progress)
            self._writer.want("progress", entry(progress), in_s=GATHER_S, stands=note)

    def report_finished(self) -> None:
        """The training has finished, so no further fragment needs to start. Returns when that is
        recorded, within a minute or so.

        Without this record the exit of the script counts as a failure. If Slurm's commands are
        missing, no report was ever recorded and this returns at once.
        """
        if not self._is_reporter or (self._is_mute and job_comment.missing_commands()):
            return
        self._hold_startable()
        if not self._has_recorded(Standing.FINISHED):
            say(
                "the training finished, but this could not be recorded in the job's Comment; the "
                "run may count as failed"
            )

    def _hold_startable(self) -> None:
        """Hold the elements that a tick has released and Slurm has not started. The next tick
        cancels them, or releases them again if the batch script begins another training. Without a
        tick nobody would.
        """
        if not self._has_tick:
            return
        array = self._env.get("SLURM_ARRAY_JOB_ID", "")
        if numbers := startable(answer(request(array))):
            element = f"{array}_[{','.join(map(str, numbers))}]"
            if why := _scontrol("uhold", element):
                debug(f"scontrol uhold {element}: {why}")

    def report_apart(self) -> None:
        """This fragment gives up, since others of its job train in another directory. Returns when
        that is recorded, or after FINISH_S.
        """
        if self._is_reporter:
            self._has_recorded(Standing.APART)

    def _has_recorded(self, standing: Standing) -> bool:
        """Write it now, again until it stands there. Return False if it does not after FINISH_S."""
        self._standing = standing
        deadline = time.monotonic() + FINISH_S
        while True:
            with suppressed(*_ERRORS, doing=f"writing `{standing.value}`"):
                if self._write(standing):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(CONFIRM_S)

    def _write(
        self, standing: Standing, limit_s: float = TURN_S, before: Optional[str] = None
    ) -> bool:
        """Write it now. Return True if it stood there already. Raises OSError, SubprocessError."""
        return self._writer.write("standing", Stand(standing, self._run), limit_s, before)

    def is_outlived(self) -> bool:
        """Ask Slurm whether it has ended this run of the element. A node that was cut off may come
        back after that, with this agent alive. It is False without an answer.
        """
        return bool(self._element) and is_other_run(answer(run_request(self._element)), self._run)

    def was_noticed(self) -> bool:
        """Ask Slurm whether a tick has asked this fragment to leave. Before this process listens,
        its signal has no effect. It is False without an answer.
        """
        return bool(self._element) and is_noticed(answer(notice_request(self._element)))

    def put_back(self) -> None:
        """Have Slurm hold and requeue this element, and wait until Slurm ends this agent.

        The batch script must not go on, since its exit code would count as the fragment's. Returns
        at once outside of an array, else after SIGTERM. An earlier scancel is not undone.
        """
        if not self._element:
            return
        self._signals.silence()
        is_asked = not self._is_reporter
        if self._is_reporter:
            self._write_last()
        while not self._signals.is_terminated:
            is_asked = is_asked or self._requeue()
            self._signals.wait_end(AGAIN_S)

    def _write_last(self) -> None:
        """Write the last standing before the requeue, after which the next run may write."""
        unwritten = self._writer.wanted("standing")
        if self._has_trained:
            self._standing = Standing.TRAINED
        elif unwritten is None or unwritten.standing is not self._standing:
            return
        if self._standing:
            with suppressed(*_ERRORS, doing=f"writing `{self._standing.value}`"):
                self._write(self._standing)

    def _requeue(self) -> bool:
        """Tell whether Slurm has accepted, or has ended this run already. Never repeated after
        that: the element may be in its next run.

        It does not use requeuehold, which hides an operator's hold (22.05). A user's hold leaves
        that hold as it is, and a held job stays held over a requeue. While the partition is
        INACTIVE, Slurm holds the element and answers that it did not (22.05). Without a tick nobody
        would release it, so it is requeued only.
        """
        if self.is_outlived():
            return True
        return (not self._has_tick or self._does("uhold")) and self._does("requeue")

    def _does(self, verb: str) -> bool:
        why = _scontrol(verb, self._element)
        if not why or (verb == "uhold" and is_held(answer(hold_request(self._element)))):
            return True
        self._complain(verb, why)
        return False

    def _complain(self, verb: str, why: str) -> None:
        """Complain once: the node is not given back for now. No line if this agent is being ended
        anyway.
        """
        line = f"scontrol {verb} {self._element} failed: {' '.join(why.split())[:200]}"
        if self._has_complained or self._signals.is_terminated:
            debug(line)
            return
        self._has_complained = True
        say(f"{line}; retrying, and keeping this node until it succeeds")


def _scontrol(verb: str, element: str) -> str:
    """Return why it failed, empty if it did not."""
    return ask("scontrol", verb, element, limit_s=job_comment.TIMEOUT_S)[1]
