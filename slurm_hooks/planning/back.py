"""Puts fragments that have ended back into the queue, held."""

from __future__ import annotations

from slurm_hooks.model import ENDED_STATES, Fragment, FragmentState, Intent, Mark, Verb, Why

BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}
"""States from which a fragment can be put back."""


def put_back(fragment: Fragment, cause: Why, mark: Mark) -> Intent:
    """Return the intent to put a fragment back. An operator's hold stays."""
    is_held = not fragment.is_on_hold
    return Intent(fragment.id, cause, Verb.PUT_BACK, mark=mark, is_held=is_held, is_ended=True)
