"""Fragments leave for a job that waits for a limit on their number, and return once it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clusters import clusters, fragments, many
from hypothesis import given
from hypothesis import strategies as st

from build import (
    after,
    make_fragment,
    make_job,
    make_node,
    make_nodes,
    make_snapshot,
)
from fake_slurm import FakeSlurm
from planning.readings import grown, noticed, plan_for, told_to_go
from slurm_hooks.model import (
    Counted,
    FragmentState,
    MalleableJob,
    NodeState,
    Off,
    Snapshot,
    Verb,
    Waiter,
    Why,
)
from slurm_hooks.planning.ground import Ground
from slurm_hooks.planning.limits import is_counted
from slurm_hooks.report.why import reason_text
from slurm_hooks.settings.values import Mode, Settings, Site
from slurm_hooks.slurm.gateway import observe
from slurm_hooks.tick.observe import needs_charges

RUNNING, PENDING, HELD = FragmentState.RUNNING, FragmentState.PENDING, FragmentState.HELD
ON = Settings(mode=Mode("on"))
OWN_QOS = replace(ON, site=Site(qos="scavenge"))
REASON = {
    Counted.ACCOUNT: "AssocGrpNodeLimit",
    Counted.USER: "AssocMaxJobsLimit",
    Counted.QOS: "QOSGrpNodeLimit",
    Counted.QOS_USER: "QOSMaxJobsPerUserLimit",
    Counted.QOS_ACCOUNT: "MaxJobsPerAccount",
}


def waiter(counted: Counted = Counted.ACCOUNT, **fields: Any) -> Waiter:
    given = {"user": "bob", "account": "lab", "qos": "normal", **fields}
    return Waiter("99", reason=REASON[counted], counted=counted, **given)


def ann(*parts: Any, **fields: Any) -> MalleableJob:
    job = make_job(*parts, held=2, user="ann")
    return replace(job, **{"account": "lab", "qos": "normal", **fields})


def running(**mark: Any) -> MalleableJob:
    return ann(make_fragment(0, RUNNING, ["n1"]), make_fragment(1, RUNNING, ["n2"]), **mark)


def seen_with(job: MalleableJob, *waiting: Waiter, **fields: Any) -> Snapshot:
    taken = {n for f in job.fragments for n in f.nodes if f.state is RUNNING}
    nodes = tuple(
        make_node(n.name, NodeState.BUSY if n.name in taken else NodeState.FREE)
        for n in make_nodes(4)
    )
    return make_snapshot(job, nodes=nodes, waiting=waiting, **fields)


# -- jobs that make room


def test_all_fragments_leave_and_no_fragment_starts() -> None:
    plan = plan_for(seen_with(running(), waiter()))
    assert noticed(plan) == {0: Why.LIMIT, 1: Why.LIMIT}
    assert not grown(plan)
    assert not [a for a in plan.actions if a.end is not None]
    assert {a.mark.gave_way_to for a in plan.actions if a.verb is Verb.NOTICE} == {"99"}
    (job,) = plan.jobs
    assert job.nodes_planned == 0
    assert [r.why for r in job.reasons] == [Why.LIMIT, Why.GIVEN_BACK, Why.GIVEN_BACK]
    assert "make room for job 99 of bob" in reason_text(job.reasons[0])
    assert "AssocGrpNodeLimit" in reason_text(job.reasons[0])


def test_fragments_stay_and_grow_while_no_job_waits_for_the_limit() -> None:
    plan = plan_for(seen_with(running()))
    assert noticed(plan) == {}
    assert len(grown(plan)) == 2


def test_a_fragment_that_is_about_to_start_is_held() -> None:
    job = ann(make_fragment(0, PENDING, ["n1"], released=after(-5)))
    plan = plan_for(seen_with(job, waiter()))
    assert [a.cause for a in plan.actions if "hold" in a.parts] == [Why.LIMIT]


def test_scripts_of_a_finished_job_are_ended() -> None:
    job = ann(make_fragment(0, RUNNING, ["n1"], is_finished=True))
    causes = [a.cause for a in plan_for(seen_with(job, waiter())).actions if a.verb is Verb.CANCEL]
    assert Why.LIMIT in causes


@pytest.mark.parametrize(
    ("counted", "same", "has_to"),
    [
        (Counted.ACCOUNT, {"account"}, True),
        (Counted.ACCOUNT, {"user", "qos"}, False),
        (Counted.USER, {"user", "account"}, True),
        (Counted.USER, {"user", "qos"}, False),
        (Counted.USER, {"account", "qos"}, False),
        (Counted.QOS, {"qos"}, True),
        (Counted.QOS, {"user", "account"}, False),
        (Counted.QOS_USER, {"user", "qos"}, True),
        (Counted.QOS_USER, {"user", "account"}, False),
        (Counted.QOS_USER, {"qos", "account"}, False),
        (Counted.QOS_ACCOUNT, {"qos", "account"}, True),
        (Counted.QOS_ACCOUNT, {"qos", "user"}, False),
        (Counted.QOS_ACCOUNT, {"account", "user"}, False),
    ],
)
def test_the_fragments_that_a_limit_counts(counted: Counted, same: set[str], has_to: bool) -> None:
    other = {"user": "ann", "account": "lab", "qos": "normal"}
    waits = waiter(counted, **{k: v if k in same else "other" for k, v in other.items()})
    assert is_counted(ann(), waits) is has_to
    assert len(grown(plan_for(seen_with(ann(), waits)))) == (0 if has_to else 2)


def test_an_account_is_compared_as_slurm_does() -> None:
    assert is_counted(ann(account="Lab"), waiter(account="lab"))


@pytest.mark.parametrize("counted", list(Counted))
def test_an_unknown_account_or_qos(counted: Counted) -> None:
    """An unknown value counts as equal for the same user. For other users it is not assumed."""
    unknown = waiter(counted, user="ann", account="", qos="")
    is_user_s = counted in (Counted.USER, Counted.QOS_USER)
    assert is_counted(ann(), unknown) is is_user_s


@pytest.mark.parametrize("counted", [Counted.QOS, Counted.QOS_USER, Counted.QOS_ACCOUNT])
def test_limits_of_qos_do_not_matter_to_fragments_with_a_separate_qos(counted: Counted) -> None:
    seen = seen_with(ann(), waiter(counted, user="ann"))
    assert len(grown(plan_for(seen))) == 0
    assert len(grown(plan_for(seen, OWN_QOS))) == 2
    assert not needs_charges(Ground(seen, OWN_QOS))


# -- until it has started


def had_left(state: FragmentState = HELD, **fields: Any) -> MalleableJob:
    return ann(make_fragment(0, state, noticed=after(-900), gave_way_to="99", **fields))


@pytest.mark.parametrize("reason", ["Resources", "Priority", "None"])
def test_fragments_do_not_come_back_while_the_job_waits_for_another_reason(reason: str) -> None:
    waits = Waiter("99", "bob", reason)
    plan = plan_for(seen_with(had_left(), waits))
    assert not grown(plan)
    assert "has not started yet" in reason_text(plan.jobs[0].reasons[0])


def test_fragments_come_back_when_the_job_has_started() -> None:
    plan = plan_for(seen_with(had_left()))
    grows = [a for a in plan.actions if a.verb is Verb.GROW]
    assert len(grows) == 3
    assert {a.mark.gave_way_to for a in grows} == {""}


def test_a_job_that_waits_for_nodes_only_keeps_no_fragment_away() -> None:
    assert len(grown(plan_for(seen_with(ann(), Waiter("99", "bob", "Resources"))))) == 2


# -- questions and messages


@pytest.mark.parametrize(
    ("waits", "is_asked"),
    [
        (waiter(), True),
        (waiter(Counted.QOS), True),
        (waiter(Counted.USER, user="ann"), True),
        (waiter(Counted.USER, user="bob"), False),
        (Waiter("99", "bob", "Resources"), False),
    ],
)
def test_accounts_are_asked_only_where_they_matter(waits: Waiter, is_asked: bool) -> None:
    seen = seen_with(ann(), waits)
    assert needs_charges(Ground(seen, ON)) is is_asked
    assert not needs_charges(Ground(replace(seen, jobs=()), ON))
    assert not needs_charges(Ground(replace(seen, off=Off(after(-1))), ON))


def test_the_reason_of_idle_nodes() -> None:
    (idle,) = plan_for(seen_with(ann(), waiter())).idle
    assert (idle.reason, idle.nodes) == (Why.LIMIT, 4)


# -- whatever the cluster looks like

WAITING = st.lists(
    st.builds(
        waiter,
        st.sampled_from(list(Counted)),
        user=st.sampled_from(["nobody", "bob"]),
        account=st.sampled_from(["", "lab", "ml"]),
        qos=st.sampled_from(["", "normal", "high"]),
    ),
    min_size=1,
    max_size=3,
)


@many
@given(clusters(), WAITING, st.sampled_from(["", "lab", "ml"]))
def test_a_counted_fragment_neither_starts_nor_stays(
    slurm: FakeSlurm, waiting: list[Waiter], account: str
) -> None:
    seen = observe(slurm, ["malleable"])
    jobs = tuple(replace(job, account=account, qos="normal") for job in seen.jobs)
    seen = replace(seen, jobs=jobs, waiting=tuple(waiting))
    plan = plan_for(seen)
    counted = {j.job_id for j in jobs if any(is_counted(j, w) for w in waiting)}
    started = {a.fragment.job_id for a in plan.actions if a.verb is Verb.GROW}
    assert not started & counted
    active = {f.id for f in fragments(seen).values() if f.is_active}
    assert {f for f in active if f.job_id in counted} <= told_to_go(plan)
    others = replace(seen, jobs=tuple(j for j in jobs if j.job_id not in counted))
    alone = plan_for(replace(others, waiting=()))
    assert plan_for(others).actions == alone.actions
