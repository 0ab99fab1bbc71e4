"""How long a fragment rests between two runs."""

from __future__ import annotations

from datetime import timedelta

from slurm_hooks.model import WAITING_STATES, Fragment, FragmentState
from slurm_hooks.model.ends import is_death, requeue_of
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.moments import is_within

# Slurm makes a requeued job wait for as long as credentials live: a node refuses one that is not
# newer than the end of the job's last run there, in whole seconds ("Job credential revoked",
# 22.05). We shorten that wait, but not to nothing.
REST = timedelta(seconds=3)


def is_rested(ground: Ground, fragment: Fragment) -> bool:
    """True for a held fragment whose last run did not end just now."""
    if fragment.state not in WAITING_STATES:
        return False
    if fragment.state is FragmentState.SPECIAL and is_death(fragment):
        return False  # its end is put on record first
    if is_within(ground.now, fragment.mark.noticed, REST):
        return False
    return not is_within(ground.now, requeue_of(fragment, ground.slurm), REST)
