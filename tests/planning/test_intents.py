"""An intent for each fragment: several become a single intent, and a plan takes no second."""

from __future__ import annotations

import pytest

from build import NOW, after, make_mark
from slurm_hooks.model import FragmentId, Intent, Plan, Verb, Why, merged, one_each

ID, OTHER = FragmentId(7, 0), FragmentId(7, 1)
NOTED = Intent(ID, Why.NOTED, mark=make_mark(failures=0))
HELD = Intent(ID, Why.SECURED, is_held=True)
RENEWED = Intent(ID, Why.HOLE_OPEN, end=after(600))
NOTICE = Intent(ID, Why.HOLE_CLOSES, Verb.NOTICE, mark=make_mark(noticed=NOW))


def test_a_plan_with_two_intents_on_a_fragment_is_refused() -> None:
    with pytest.raises(ValueError, match="one intent"):
        Plan((NOTED, HELD))


def test_a_notice_that_is_held_and_cut_is_a_single_row() -> None:
    (intent,) = one_each((NOTED, HELD, NOTICE, RENEWED))
    assert intent == Intent(
        ID, Why.HOLE_CLOSES, Verb.NOTICE, mark=NOTICE.mark, is_held=True, end=RENEWED.end
    )
    assert intent.parts == ("notice", "hold", "renew")


def test_the_reason_belongs_to_the_weightiest_part() -> None:
    """A hold for RequeueExit replaces an operator's: its reason must not come from a mark."""
    for one, two in ((NOTED, HELD), (HELD, NOTED)):
        assert merged(one, two) == Intent(ID, Why.SECURED, mark=NOTED.mark, is_held=True)
    assert merged(RENEWED, NOTED).cause is Why.NOTED
    assert merged(NOTED, RENEWED).cause is Why.NOTED


def test_the_later_of_two_marks_counts() -> None:
    later = Intent(ID, Why.APART, mark=make_mark(is_apart=True))
    assert merged(NOTED, later).mark == later.mark
    assert merged(NOTICE, later).mark == later.mark


def test_fragments_keep_their_order() -> None:
    first = Intent(OTHER, Why.SECURED, is_held=True)
    assert [i.fragment for i in one_each((first, NOTED, HELD))] == [OTHER, ID]


@pytest.mark.parametrize(
    ("intent", "parts"),
    [
        (NOTED, ("set mark",)),
        (RENEWED, ("renew",)),
        (Intent(ID, Why.LEFT, Verb.PUT_BACK, is_held=True, is_ended=True), ("put back",)),
        (Intent(ID, Why.STOPPED, Verb.CANCEL, is_ended=True), ("cancel", "put back")),
        (Intent(ID, Why.HELD), ()),
    ],
)
def test_an_intent_in_words(intent: Intent, parts: tuple[str, ...]) -> None:
    assert intent.parts == parts
