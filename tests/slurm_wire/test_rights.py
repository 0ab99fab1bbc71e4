"""The users who may have the QOS of malleable jobs, by associations in slurmdbd."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from build import make_fragment, make_job, make_request, make_slurm, make_snapshot
from slurm_hooks.errors import RetryLater
from slurm_hooks.model import Slot, Snapshot
from slurm_hooks.settings.values import Site
from slurm_hooks.slurm.cluster import parse_cluster
from slurm_hooks.slurm.live import Asked
from slurm_hooks.slurm.rights import parse_rights, rights_command, with_rights
from slurm_hooks.slurm.text import Command
from slurm_hooks.tick.observe import DENIED_S, Hourly, with_kept_rights

SAID = "ann|lab|normal,scavenge\nann|Other|normal\nbob|lab|normal\nroot|root|\n"
SITE = Site(qos="Scavenge")


class Told:
    """A port with a single answer."""

    def __init__(self, text: str) -> None:
        self._text, self.commands = text, 0
        self.asked: list[Asked] = []

    def ask(self, command: Command) -> str:
        self.commands += 1
        if not self._text:
            raise RetryLater("slurmdbd does not answer")
        return self._text


def seen_of(
    user: str, account: str = "", lane: str = "main", is_enforced: bool = True, **asked: Any
) -> Snapshot:
    request = replace(make_request(1, 3), **{"core": 1, "lane": "malleable", **asked})
    fragments = (make_fragment(i, request=request, lane=lane) for i in range(3))
    job = replace(make_job(*fragments, request=request, user=user), account=account)
    return make_snapshot(job, slurm=make_slurm(enforces_qos=is_enforced))


def test_where_qos_decide_fragments_get_the_qos_without_a_move() -> None:
    seen = seen_of("bob", lane="malleable")
    assert with_rights(Told(SAID), seen, SITE).without_qos == frozenset()
    by_qos = replace(seen, slurm=replace(seen.slurm, preempts_by_qos=True))
    assert with_rights(Told(SAID), by_qos, SITE).without_qos == {7}


@pytest.mark.parametrize(
    ("user", "core", "slot", "denied"),
    [
        ("ann", 1, None, False),
        ("ann", 1, Slot("gpu"), True),
        ("ann", 0, Slot("gpu"), True),
        ("bo", 0, Slot("gpu"), False),
        ("eve", 0, Slot("gpu"), True),
    ],
)
def test_a_user_needs_each_qos_that_fragments_of_the_job_get(
    user: str, core: int, slot: Slot | None, denied: bool
) -> None:
    said = "ann|lab|scavenge\nbo|lab|scavenge,low\neve|lab|low\n"
    seen = seen_of(user, lane="malleable", core=core, slot=slot)
    by_qos = replace(seen, slurm=replace(seen.slurm, preempts_by_qos=True))
    site = Site(qos="scavenge", part_nodes="low")
    assert with_rights(Told(said), by_qos, site).without_qos == ({7} if denied else frozenset())


def test_rows_are_read_in_any_letters() -> None:
    rights = parse_rights(SAID)
    assert rights["ann"] == {"lab": {"normal", "scavenge"}, "other": {"normal"}}
    assert rights["root"] == {"root": {""}}
    assert parse_rights("nonsense\n|a|b\n") == {}


@pytest.mark.parametrize(
    ("user", "account", "denied"),
    [
        ("ann", "lab", False),
        ("ann", "Other", True),
        ("ann", "", False),
        ("bob", "lab", True),
        ("eve", "lab", True),
    ],
)
def test_a_user_without_the_qos_is_named(user: str, account: str, denied: bool) -> None:
    snapshot = with_rights(Told(SAID), seen_of(user, account), SITE)
    assert snapshot.without_qos == (frozenset({7}) if denied else frozenset())


def test_without_an_answer_no_fragment_is_moved() -> None:
    snapshot = with_rights(Told(""), seen_of("ann"), SITE)
    assert snapshot.without_qos == {7}
    assert "no fragment gets QOS Scavenge now" in snapshot.unknown[-1]


@pytest.mark.parametrize(
    ("seen", "site"),
    [
        (seen_of("bob", lane="malleable"), SITE),
        (seen_of("bob", is_enforced=False), SITE),
        (seen_of("bob"), Site()),
    ],
)
def test_slurmdbd_is_asked_only_where_it_matters(seen: Snapshot, site: Site) -> None:
    port = Told(SAID)
    assert with_rights(port, seen, site) == seen
    assert port.commands == 0


@pytest.mark.parametrize(
    ("enforced", "is_so"),
    [
        ("associations,limits,qos", True),
        ("ALL", True),
        ("safe", False),  # associations and limits (slurm.conf(5))
        ("none", False),
    ],
)
def test_slurm_says_whether_a_qos_has_to_be_given(enforced: str, is_so: bool) -> None:
    said = (
        "Configuration data as of 1800000000\n"
        f"AccountingStorageEnforce    = {enforced}\nSLURM_VERSION           = 22.05.8\n"
    )
    seen = parse_cluster(said)
    assert seen.slurm.enforces_qos is is_so


def test_slurmdbd_is_asked_about_the_same_users_once_an_hour(tmp_path: Path) -> None:
    """A user without the QOS cost it a question at each tick."""
    port = Told(SAID)
    database = Hourly(port, str(tmp_path), is_reading=False)
    for user, asked in (("bob", 1), ("bob", 1), ("ann", 2), ("ann", 2)):
        snapshot = with_rights(database, seen_of(user, "lab"), SITE)
        assert snapshot.without_qos == (frozenset({7}) if user == "bob" else frozenset())
        assert port.commands == asked


def test_a_user_who_is_given_the_qos_need_not_wait_an_hour(tmp_path: Path) -> None:
    port = Told(SAID)
    database = Hourly(port, str(tmp_path), is_reading=False)
    for user, asked in (("bob", 2), ("bob", 3), ("ann", 4), ("ann", 4)):
        with_kept_rights(database, seen_of(user, "lab"), SITE)
        (kept,) = tmp_path.iterdir()
        os.utime(kept, (0, time.time() - DENIED_S - 1))
        with_kept_rights(database, seen_of(user, "lab"), SITE)
        assert port.commands == asked


def test_users_are_named_in_a_single_question() -> None:
    assert "user=ann,bob" in rights_command({"bob", "ann"}).argv
