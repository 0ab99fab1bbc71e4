"""Puts back what has ended, held."""

from __future__ import annotations

from slurm_hooks.model import ENDED_STATES, Fragment, FragmentState, Intent, Mark, Verb, Why

BACK_STATES = ENDED_STATES - {FragmentState.CANCELLED}
"""States out of which a fragment can be put back."""


def put_back(fragment: Fragment, cause: Why, mark: Mark) -> Intent:
    """An operator's hold stays as it is."""
    is_held = not fragment.is_on_hold
    return Intent(fragment.id, cause, Verb.PUT_BACK, mark=mark, is_held=is_held, is_ended=True)
