"""The demo reads the output of a tick."""

from __future__ import annotations

from demo.records import Act, parse_tick

from build import NOW, after, make_mark, make_snapshot, span
from slurm_hooks.model import FragmentId, Intent, Plan, Verb, Why
from slurm_hooks.report.json_data import json_text, tick_data
from slurm_hooks.report.why import action_text
from slurm_hooks.tick.report import TickReport


def test_each_fragment_has_a_single_act_and_cancels_share_an_act() -> None:
    ids = [FragmentId(3, index) for index in range(7)]
    plan = Plan(
        (
            Intent(
                ids[0],
                Why.HOLE_OPEN,
                Verb.GROW,
                mark=make_mark(),
                nodes=frozenset({"n1", "n2"}),
                limit=span(300),
            ),
            Intent(ids[1], Why.HOLE_OPEN, end=after(600)),
            Intent(ids[2], Why.LEASE_ENDED, Verb.PUT_BACK, is_held=True, is_ended=True),
            Intent(ids[3], Why.SECURED, is_held=True, mark=make_mark()),
            Intent(ids[4], Why.NOTED, mark=make_mark()),
            *(Intent(name, Why.FINISHED, Verb.CANCEL) for name in ids[5:]),
        )
    )
    report = TickReport(NOW, plan, make_snapshot(), (), (), 0.5, is_dry=False)
    acts = parse_tick(json_text(tick_data(report))).acts
    assert [(act.kind, act.fragments) for act in acts] == [
        ("grow", ("3_0",)),
        ("renew", ("3_1",)),
        ("put-back", ("3_2",)),
        ("hold", ("3_3",)),
        ("set-mark", ("3_4",)),
        ("cancel", ("3_5", "3_6")),
    ]
    grown, renewed, *_ = acts
    assert grown == Act(NOW.timestamp(), "grow", ("3_0",), action_text("hole_open"), ("n1", "n2"))
    assert renewed.is_renewal
