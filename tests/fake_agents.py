"""Programs inside a fragment of the fake Slurm: a script, and the agents of our rendezvous.

Agents write their standing into the Comment of their element, and put themselves back when they
leave. They have the knowledge of a job, and the rights of its user.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Optional

from fake_parts import Element

if TYPE_CHECKING:
    from fake_slurm import FakeSlurm

WORDS = ("joined", "trained", "leaving", "finished")
FINISH_PATIENCE_S = 60
AGAIN_S = 3  # between two tries to put itself back


def act(slurm: FakeSlurm, element: Element) -> Optional[int]:
    """A second of a running element. Return its exit code if the script ends."""
    script, run = slurm.job(element).script, element.run
    code = slurm.outcome(element, run.ran_s)
    if code is not None:
        return code
    if not script.joins:
        return 0 if script.is_done else None
    if run.left_at is None and not script.ignores_notice and _must_go(slurm, element):
        run.left_at = slurm.steady + slurm.leave_s
        _say(slurm, element, "leaving")
    if run.left_at is not None:
        _put_back(slurm, element)
        return None
    return _train(slurm, element)


def _must_go(slurm: FakeSlurm, element: Element) -> bool:
    assert element.end is not None
    return element.signalled is not None or slurm.now >= element.end - slurm.agent_notice_s


def _put_back(slurm: FakeSlurm, element: Element) -> None:
    """Put itself back. It never returns control to the script, but waits until Slurm ends it."""
    assert element.run.left_at is not None
    waited = slurm.steady - element.run.left_at
    if waited >= 0 and waited % AGAIN_S == 0 and not slurm.job(element).script.is_mute:
        for verb in ("uhold", "requeue"):  # not requeuehold, which hides an operator's hold
            slurm.does(f"scontrol {verb} {element.name}", element.user)


def _train(slurm: FakeSlurm, element: Element) -> Optional[int]:
    script, run = slurm.job(element).script, element.run
    if script.is_done and run.ran_s >= script.join_s + 5 * element.index:
        run.tried_s += 1
        is_said = _say(slurm, element, "finished")
        return 0 if is_said or run.tried_s > FINISH_PATIENCE_S else None
    if run.ran_s >= script.train_s:
        _say(slurm, element, "trained")
    elif run.ran_s >= script.join_s:
        _say(slurm, element, "joined")
    return None


def _say(slurm: FakeSlurm, element: Element, word: str) -> bool:
    """Write our word first into the Comment, with the user's own text after it."""
    if slurm.job(element).script.is_mute:
        return False
    if element.run.said != word:
        element.run.said = word
        own = re.sub(rf"^(?:{'|'.join(WORDS)})\{{\d+\}};?", "", element.comment)
        text = f"{word}{{{element.restarts}}}"
        slurm.run("scontrol", ["update", element.name, f"Comment={text};{own}"], element.user)
    return True
