"""A checkpoint that is written only when it is needed.

When this process is about to end, by a signal or by an error, the last step boundary goes from its
own memory into the node's. If the process may end without either, boundaries are copied ahead
(exposure.py).

With data parallelism every survivor holds the whole state, so only the step under way is lost (the
idea: Gupta et al., Just-In-Time Checkpointing, EuroSys 2024).
"""

from __future__ import annotations

import math
import os
import threading
import time
from contextlib import suppress
from typing import Any

import torch.distributed as dist

from slurm_hooks.elastic.farewell import farewell_s
from slurm_hooks.elastic.log import say
from slurm_hooks.elastic.mailbox import MailboxReader
from slurm_hooks.elastic.script.boundary import Boundary, StateTornError
from slurm_hooks.elastic.script.device_events import check_devices, is_captured
from slurm_hooks.elastic.script.exposure import Exposure
from slurm_hooks.elastic.script.group_backend import may_abort
from slurm_hooks.elastic.script.last_signal import LastSignal
from slurm_hooks.elastic.script.node_memory import NodeMemory
from slurm_hooks.elastic.script.readiness import Readiness
from slurm_hooks.elastic.script.watched import Watched, check_plain, first_line

TORN_S = 5.0  # the longest wait for the end of a step under way
_TRIES = 3  # a device may reach the next step while the last state is read


class JustInTime:
    """In the first process of a node. Methods that the training calls do not raise: a state that
    cannot be kept gives a line in the job's log.
    """

    def __init__(self, watched: Watched, memory: NodeMemory) -> None:
        self._boundary = Boundary(watched)
        self._memory = memory
        self._writing = threading.RLock()
        self._is_frozen = False
        self._kept = -1
        self._mark: dict[str, Any] = {}
        self._has_failed = False
        self._exposure = Exposure(time.monotonic())
        self._has_room, self._has_copied = True, False
        self._readiness: Readiness | None = None
        self._farewell_s = farewell_s(os.environ)
        self._mailbox = MailboxReader(os.environ)
        self._has_told = self._has_said_torn = False
        self._signal = LastSignal(
            self.keep, self._keep_if_unfinished, self._let_go, self._farewell_s
        )

    def listen(self) -> None:
        """Hear signals from now on."""
        self._signal.listen()

    def begin_change(self) -> None:
        """See Boundary."""
        if self._can_go_on():
            self._exposure.close(time.monotonic())
            self._boundary.begin_change()

    def pause_change(self) -> None:
        """The next calls may wait for other processes. If the state is torn and a peer is lost at
        that time, it stays torn.
        """
        if self._boundary.is_changing:
            self._exposure.open(time.monotonic())

    def reached(self, step: int) -> None:
        """The training has reached a step boundary."""
        if not self._can_go_on():
            return
        self._signal.listen()
        self._exposure.close(time.monotonic())
        try:
            self._boundary.reach(step)
            self._readiness = self._readiness or self._get_ready()
        except Exception as error:
            self._fail(f"step {step} cannot be kept: {first_line(error)}")
        else:
            self._copy_if_due(step)

    def _can_go_on(self) -> bool:
        if not self._has_failed and is_captured():
            self._fail("the step becomes a CUDA graph, whose replays cannot be seen")
        return not self._has_failed

    def _get_ready(self) -> Readiness:
        """At the first boundary, since optimizers have their state only then."""
        content = self._boundary.content()
        check_devices(content)
        return Readiness(self._memory, content, self._boundary.aside, self._expect)

    def _expect(self, seconds: float, size: int) -> None:
        """Report how long a copy will take, before the first copy."""
        if self._has_copied or self._has_failed or self._kept >= 0:
            return
        self._mailbox.write_copy_s(seconds)
        if seconds > self._farewell_s and os.environ.get("RANK", "0") == "0":
            say(
                f"a copy of this state ({size / (1 << 30):.1f} GiB) takes about {seconds:.0f} s, "
                f"but a fragment that Slurm ends has {self._farewell_s:g} s: training may then "
                "resume from an earlier checkpoint, so save files now and then"
            )

    def _copy_if_due(self, step: int) -> None:
        why = self._why_always()
        self._tell(bool(why))
        is_due = self._exposure.is_copy_due(time.monotonic(), step, always=bool(why))
        if is_due and self._readiness is not None and self._readiness.is_done:
            self._copy(why)

    def _why_always(self) -> str:
        """Return why a copy at the end of this process is not enough, or an empty text."""
        if may_abort():
            return "the backend ends a process whose peer is lost, before it can save its state"
        if self._boundary.has_moved:
            return (
                "weights are changed in place after reached(), without changing() before, so "
                "there is no consistent state until the next reached()"
            )
        return ""

    def _copy(self, why_always: str) -> None:
        """Keep this boundary already now."""
        self._boundary.await_device()
        with self._writing:
            began = time.monotonic()
            share = self._exposure.share(began)
            self._try_to_keep()
            now = time.monotonic()
            lag_s = self._exposure.copied(now, now - began)
        if why_always:
            is_kept = self._kept == self._boundary.step
            self._mailbox.write_lag_s(lag_s if is_kept else math.inf)
        if not self._has_room:
            self._exposure.give_up()
        elif not self._has_copied and os.environ.get("RANK", "0") == "0":
            why = why_always or (
                f"{share:.0%} of the time an optimizer has changed the weights and the step is not "
                "complete, as between two optimizers: no state can be saved if a node is lost then"
            )
            every_s = self._exposure.pause_s
            say(f"{why}; so it is also copied to memory about every {every_s:.0f} s")
        self._has_copied = True

    def _tell(self, needs_copies: bool) -> None:
        """Tell the agent that a lost node costs no more than a step, or that no state is kept until
        the first copy.
        """
        if not self._has_told:
            self._has_told = True
            self._mailbox.write_lag_s(math.inf if needs_copies else 0.0)
            self._mailbox.write_watched(True)

    def keep(self) -> None:
        """Save the last boundary, and stop the training before it would change. May be called in
        any thread, many times.
        """
        with self._writing:
            if not self._has_failed and self._boundary.step >= 0 and self._freeze():
                self._try_to_keep()

    def keep_here(self) -> None:
        """Save the boundary at which the training is now, and let it go on."""
        if not self._has_failed:
            self._boundary.await_device()
            with self._writing:
                self._try_to_keep()

    def keep_result(self, mark: dict[str, Any]) -> bool:
        """Save the last boundary with this mark beside its content. Return False if it is lost, as
        when the script has put other weights into the model since.
        """
        if self._has_failed:
            return False
        self._boundary.await_device()
        with self._writing, suppress(StateTornError):
            self._mark, self._kept = mark, -1
            self._keep_once()
        return self._kept >= 0

    def end(self) -> None:
        """Keep no state from now on, and leave signals alone."""
        self._has_failed = True
        self._let_go()
        self._signal.end()
        if self._has_told:
            self._mailbox.write_watched(False)

    def _freeze(self) -> bool:
        if self._is_frozen:
            return True
        is_own = threading.current_thread() is threading.main_thread()
        patience_s = 0.0 if self._boundary.is_changing and is_own else TORN_S
        self._is_frozen = self._boundary.freeze(patience_s)
        if not self._is_frozen and not self._has_said_torn:
            self._has_said_torn = True
            say(
                f"the step after {self._boundary.step} was interrupted: an optimizer had changed "
                "the weights and the step was not complete, so this process has no state to save; "
                "another node's state or an earlier copy counts"
            )
        return self._is_frozen

    def _try_to_keep(self) -> None:
        try:
            self._keep()
        except Exception as error:
            self._fail(f"step {self._boundary.step} cannot be kept: {first_line(error)}")

    def _keep(self) -> None:
        if self._boundary.step < 0 or self._boundary.step == self._kept:
            return
        why = ""
        for _ in range(_TRIES):
            try:
                return self._keep_once()
            except StateTornError as error:
                why = str(error)
        say(
            f"step {self._boundary.step} is not kept: {why}; training resumes from an earlier "
            "copy or checkpoint"
        )

    def _keep_once(self) -> None:
        with self._memory.draft() as draft:
            with self._boundary.whole() as state:
                if state is None or state[0] == self._kept:
                    return
                step, content = state
                began = time.monotonic()
                check_plain(content)
                self._has_room = draft.fill(step, {**content, **self._mark})
            if self._has_room:
                draft.commit()
                self._kept = step
                self._mailbox.write_copy_s(time.monotonic() - began)
            else:
                say(
                    f"step {step} does not fit into memory: training resumes from an earlier "
                    "checkpoint"
                )

    def _keep_if_unfinished(self) -> None:
        if dist.is_available() and dist.is_initialized():
            self.keep()  # a finished script leaves the process group first

    def _let_go(self) -> None:
        """The script ends this process itself, and may go on until then."""
        with self._writing:
            if self._is_frozen:
                self._is_frozen = False
                self._boundary.thaw()

    def _fail(self, why: str) -> None:
        self._has_failed = True
        self._mailbox.write_watched(False)
        say(f"{why}; training resumes from the last checkpoint")
