"""Questions of tests to a plan."""

from __future__ import annotations

from build import no_clock
from slurm_hooks.model import FragmentId, Plan, Snapshot, Verb, Why
from slurm_hooks.planning.plan import make_plan
from slurm_hooks.settings.values import Mode, Settings

SHIPPED = Settings(mode=Mode("on"))


def plan_for(seen: Snapshot, chosen: Settings = SHIPPED) -> Plan:
    return make_plan(seen, chosen, no_clock)


def noticed(plan: Plan) -> dict[int, Why]:
    """The reasons for notices to fragments, by index."""
    return {a.fragment.index: a.cause for a in plan.actions if a.verb is Verb.NOTICE}


def grown(plan: Plan) -> set[str]:
    """The nodes that fragments are released onto."""
    return {n for a in plan.actions if a.verb is Verb.GROW for n in a.nodes}


def renewed(plan: Plan) -> set[int]:
    """The fragments that get a new lease, longer or shorter, by index."""
    return {a.fragment.index for a in plan.actions if a.end is not None}


def told_to_go(plan: Plan) -> set[FragmentId]:
    """The fragments that are told to leave, by a notice or at once."""
    goes = (Verb.CANCEL, Verb.NOTICE, Verb.PUT_BACK)
    return {a.fragment for a in plan.actions if a.verb in goes}
