"""Each `Why` has words for all that it may speak of."""

from __future__ import annotations

import pytest

from slurm_hooks.model import Of, Reason, Verdict, Why
from slurm_hooks.report.why import action_text, reason_text


@pytest.mark.parametrize("why", Of.ACTION.whys)
def test_what_is_done_to_a_fragment_has_words(why: Why) -> None:
    assert action_text(why.value) != why.value


def test_other_words_of_the_ledger_stay() -> None:
    """A job that was stopped has the words of its mark, a later version may know other causes."""
    assert action_text("failed-3-times:exit-1:0-on-n1") == "failed-3-times:exit-1:0-on-n1"


@pytest.mark.parametrize("why", Of.NODE.whys)
def test_a_verdict_on_nodes_has_words(why: Why) -> None:
    text = reason_text(Reason(Why.OTHER_NODES, nodes=2, verdict=Verdict(why, "detail")))
    assert text.startswith("2 other nodes: ")
    assert why in (Why.TAKEN, Why.USABLE) or "free" in text
