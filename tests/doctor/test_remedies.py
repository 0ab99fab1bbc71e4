"""From findings to the lines to paste, and the output of both."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from known_sites import GOOD_SITE, conf, says

from slurm_hooks.doctor import manual
from slurm_hooks.doctor.catalogue import CHECKS, Wish, choose
from slurm_hooks.doctor.facts import Facts, Hook, Line, Unread, known
from slurm_hooks.doctor.finding import (
    Category,
    Change,
    Check,
    Finding,
    Fix,
    Paste,
    Severity,
    error,
    note,
    warning,
)
from slurm_hooks.doctor.remedies import Remedies, Remedy
from slurm_hooks.doctor.run import ON_NODES, Outcome, closing, exit_code, run
from slurm_hooks.doctor.text import data, in_rows, lines, listing
from slurm_hooks.doctor.todo import ToDo, to_do
from slurm_hooks.errors import UsageError

CONF = "/etc/slurm/slurm.conf"


def remedy(fix: Fix, text: str = "") -> Remedy:
    finding = error("seen", fix)
    (only,) = Remedies([finding], says(), conf(text)).of(finding)
    return only


def test_a_setting_that_is_not_there_is_added() -> None:
    assert remedy(Change("KillWait", "30")) == Remedy(
        CONF, "KillWait=30", then="scontrol reconfigure"
    )


def test_the_last_of_several_lines_is_replaced_in_any_case() -> None:
    mended = remedy(Change("KillWait", "30"), "KillWait=300\na=b\nkillwait = 200\nKillWaitX=1")
    assert (mended.line, mended.number, mended.instead_of) == ("KillWait=30", 3, "killwait = 200")


def test_a_word_of_a_partition_leaves_the_others_alone() -> None:
    text = "PartitionName=main2 Nodes=a\nPartitionName=main Nodes=a prioritytier=1 Default=YES"
    mended = remedy(Change("PriorityTier", "2", "PartitionName=main"), text)
    assert mended.line == "PartitionName=main Nodes=a PriorityTier=2 Default=YES"
    assert mended.number == 2


def test_two_findings_of_the_same_line_give_the_same_new_line() -> None:
    one = error("a", Change("GraceTime", "0", "PartitionName=p"))
    two = error("b", Change("OverTimeLimit", "0", "PartitionName=p"))
    remedies = Remedies([one, two], says(), conf("PartitionName=p GraceTime=5 Nodes=n1"))
    (first,), (second,) = remedies.of(one), remedies.of(two)
    assert first == second
    assert first.line == "PartitionName=p GraceTime=0 Nodes=n1 OverTimeLimit=0"


def test_a_line_of_a_separate_file_is_replaced_there() -> None:
    here = Line("/etc/slurm/plugstack.conf.d/x.conf", 3, "required malleable.so", 2)
    mended = remedy(Paste(here.file, "optional malleable.so", instead=here))
    assert (mended.file, mended.number, mended.lines) == (here.file, 3, 2)
    assert mended.instead_of == "required malleable.so"


def test_a_suggestion_of_a_note_is_only_in_its_own_line() -> None:
    must = error("a", Change("PriorityTier", "2", "PartitionName=p"))
    may = note("b", Change("PreemptMode", "OFF", "PartitionName=p"))
    remedies = Remedies([must, may], says(), conf("PartitionName=p Nodes=n1"))
    (first,), (second,) = remedies.of(must), remedies.of(may)
    assert first.line == "PartitionName=p Nodes=n1 PriorityTier=2"
    assert second.line == "PartitionName=p Nodes=n1 PriorityTier=2 PreemptMode=OFF"


def advice(facts: Facts, is_before: bool = False) -> tuple[ToDo, str]:
    """The remedies of a site, as a value and as they are printed at the end."""
    chosen = choose(Wish(), CHECKS)
    outcomes = run(chosen, facts, is_before)
    remedies = Remedies([f for o in outcomes for f in o.findings], facts.slurm, facts.conf)
    text = "\n".join(line.text for line in lines(outcomes, remedies, "/doc"))
    return to_do(outcomes, remedies), text.partition("to do, in this order\n")[2]


BARE = replace(
    GOOD_SITE,
    slurm=says(
        config={"PreemptType": "preempt/none", "PreemptMode": "OFF", "JobSubmitPlugins": "(null)"},
        main={"PriorityTier": "1", "PreemptMode": "REQUEUE"},
        ours={"OverTimeLimit": "1"},
        more="PartitionName=big PriorityTier=9 PreemptMode=OFF Nodes=n1",
    ),
    conf=conf(
        "KillWait=30\nPreemptMode=OFF\nPartitionName=main Nodes=ALL\n"
        "PartitionName=malleable OverTimeLimit=1 Nodes=n1"
    ),
    submission=replace(known(GOOD_SITE.submission), lines=None, policy=None),
    plugstack=replace(known(GOOD_SITE.plugstack), ours=None),
    hooks=(Hook("Prolog", "/usr/libexec/slurm-malleable/prolog.sh", None, None),),
)


@pytest.mark.parametrize("is_before", [False, True])
def test_all_remedies_are_listed_once_and_in_order(is_before: bool) -> None:
    todo, text = advice(BARE, is_before)
    pasted = [remedy.line for one in todo.files for remedy in one.lines]
    assert len(set(pasted)) == len(pasted)
    assert text.startswith(
        "  in /etc/slurm/slurm.conf, from its end up:\n"
        "    instead of line 4 (PartitionName=malleable ...):\n"
        "      PartitionName=malleable OverTimeLimit=0 Nodes=n1\n"
        "    instead of line 3 (PartitionName=main Nodes=ALL):\n"
        "      PartitionName=main Nodes=ALL PriorityTier=2\n"
        "    instead of line 2 (PreemptMode=OFF):\n"
        "      PreemptMode=REQUEUE\n"
        "    add:\n"
        "      PreemptType=preempt/partition_prio\n"
    )
    order = ["in /etc/slurm/plugstack.conf:", "cp /usr/share", "then restart slurmctld, scontrol",
             "malleable render lua", "and follow the advice above on prolog"]  # fmt: skip
    assert [text.index(words) for words in order] == sorted(text.index(words) for words in order)
    assert "UsageFactor" not in text  # a note is a matter of taste


def test_a_single_remedy_is_not_printed_twice() -> None:
    facts = replace(GOOD_SITE, slurm=says(config={"KillWait": "300 sec"}))
    todo, text = advice(facts)
    assert [remedy.line for remedy in todo.files[0].lines] == ["KillWait=30"]
    assert text == ""


def test_a_line_that_mends_several_findings_is_printed_once_among_them() -> None:
    outcomes = run(choose(Wish(("preempt-type", "preempt-mode")), CHECKS), BARE, is_before=False)
    remedies = Remedies([f for o in outcomes for f in o.findings], BARE.slurm, BARE.conf)
    text = "\n".join(line.text for line in lines(outcomes, remedies, "/doc"))
    findings = text.partition("to do, in this order")[0]
    assert findings.count("PreemptMode=REQUEUE") == 1
    assert findings.count("as for preempt-type") == 1


def test_both_options_of_backfill_share_a_line() -> None:
    config = {"SchedulerParameters": "bf_interval=900,bf_continue,bf_window=10"}
    facts = replace(GOOD_SITE, slurm=says(config=config))
    todo, _ = advice(facts)
    assert [remedy.line for remedy in todo.files[0].lines] == [
        "SchedulerParameters=bf_continue,bf_window=1440,bf_interval=30"
    ]


def test_the_words_are_printed_where_slurm_conf_cannot_be_read() -> None:
    finding = error("a", Change("GraceTime", "0", "PartitionName=p"))
    (only,) = Remedies([finding], says(), Unread("elsewhere")).of(finding)
    assert only.line == "PartitionName=p ... GraceTime=0"
    assert only.place == "in the line that begins with PartitionName=p"


def test_exit_codes_and_the_closing_sentence() -> None:
    check = CHECKS[0]
    good, bad = Outcome(check), Outcome(check, (error("x"),))
    worse = Outcome(check, (warning("y"), error("x")))
    assert [exit_code(one) for one in ([good], [Outcome(check, (warning("y"),))], [bad])] == [
        0, 1, 2,
    ]  # fmt: skip
    missing = Outcome(check, (Finding(Severity.NOTE, "z", is_missing=True),))
    assert exit_code([good, missing]) == 3
    assert closing([good, missing]).startswith("To do: 1 check waiting for the steps above.")
    assert exit_code([bad, missing]) == 2
    skipped = Outcome(check, skipped="no rights")
    assert exit_code([good, skipped]) == 0
    assert exit_code([skipped]) == 1
    assert closing([skipped]).startswith("No check could run")
    assert closing([good]) == "All is well: 1 check fine, 0 skipped."
    unseen = replace(check, id=ON_NODES)
    nodes = Outcome(unseen, (Finding(Severity.NOTE, "3 compute nodes"),))
    assert closing([good, nodes]).startswith("All is well on this host, and no compute node was")
    assert closing([good, worse]).startswith("2 errors") is False
    assert closing([good, worse]).startswith("1 error and 1 warning, 1 check fine")


def test_before_the_installation_our_missing_parts_are_notes() -> None:
    facts = replace(GOOD_SITE, slurm=says(config={"JobSubmitPlugins": "(null)", "KillWait": "99"}))
    chosen = choose(Wish(("job-submit-plugin", "kill-wait")), CHECKS)
    assert [outcome.word for outcome in run(chosen, facts, is_before=True)] == ["warning", "note"]
    assert [outcome.word for outcome in run(chosen, facts, is_before=False)] == ["warning", "error"]


def test_a_failing_check_is_reported_and_the_rest_goes_on() -> None:
    def look(facts: Facts) -> list[object]:
        raise ValueError("odd")

    broken = Check("odd", Category.SITE, "t", "w", look)  # type: ignore[arg-type]
    first, second = run([broken, CHECKS[0]], GOOD_SITE, is_before=False)
    assert first.findings[0].seen == "this check failed: ValueError: odd"
    assert second.word == "ok"


def test_text_and_json_say_the_same() -> None:
    facts = replace(GOOD_SITE, slurm=says(config={"KillWait": "300 sec"}))
    outcomes = run(choose(Wish(("kill-wait", "clocks")), CHECKS), facts, is_before=False)
    remedies = Remedies([f for o in outcomes for f in o.findings], facts.slurm, facts.conf)
    text = "\n".join(line.text for line in lines(outcomes, remedies, "/doc/doctor.md"))
    answer = json.loads(json.dumps(data(outcomes, remedies, "/doc/doctor.md")))
    (kill_wait,) = (check for check in answer["checks"] if check["id"] == "kill-wait")
    (finding,) = kill_wait["findings"]
    assert "warning  kill-wait: KillWait=300" in text
    assert "in /etc/slurm/slurm.conf, instead of line 2:\n             KillWait=30\n" in text
    assert "/doc/doctor.md#kill-wait" in text
    assert finding["remedies"] == [
        {
            "file": CONF,
            "line": "KillWait=30",
            "number": 2,
            "lines": 1,
            "instead_of": "KillWait=30",
            "then": "scontrol reconfigure",
        }
    ]
    assert answer["exit_code"] == 1
    assert text.splitlines()[-1] == answer["summary"]


@pytest.mark.parametrize(
    ("wish", "some", "none"),
    [
        (Wish(), {"kill-wait", "last-tick"}, {"torch-version", "hard-links", "job-log"}),
        (Wish(is_node=True), {"hard-links", "plugstack", "clocks"}, {"last-tick", "kill-wait"}),
        (Wish(has_python=True), {"torch-version"}, {"kill-wait", "hard-links"}),
        (Wish(has_job=True), {"job-reason"}, {"kill-wait", "torch-version"}),
        (Wish(is_node=True, has_python=True), {"torch-version", "setpriv"}, {"kill-wait"}),
        (Wish(is_node=True, has_job=True), {"job-log", "setpriv"}, {"kill-wait"}),
        (Wish(("torch-version",), has_python=True), {"torch-version"}, {"kill-wait"}),
    ],
)
def test_the_checks_that_run(wish: Wish, some: set[str], none: set[str]) -> None:
    chosen = {check.id for check in choose(wish, CHECKS)}
    assert some <= chosen
    assert not none & chosen


def test_a_name_that_no_check_has() -> None:
    with pytest.raises(UsageError, match="no check kilwait"):
        choose(Wish(("kilwait",)), CHECKS)


@pytest.mark.parametrize(
    ("wish", "option"),
    [
        (Wish(("kill-wait",), has_python=True), "--python"),
        (Wish(("kill-wait", "torch-version"), has_job=True), "--job"),
        (Wish(("clocks",), is_node=True, has_directory=True), "--directory"),
    ],
)
def test_an_option_that_no_named_check_uses_is_refused(wish: Wish, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: .* do not use it"):
        choose(wish, CHECKS)


def test_ids_are_unique_and_words_of_a_link() -> None:
    ids = [check.id for check in CHECKS]
    assert len(set(ids)) == len(ids)
    assert all(name.replace("-", "").isalpha() and name == name.lower() for name in ids)


def test_the_page_is_generated_from_the_checks() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "admins" / "doctor.md"
    assert page.read_text() == manual.manual(CHECKS), "run make docs"
    for check in CHECKS:
        assert f"\n### {check.id}\n" in page.read_text()


def test_the_output_fits_into_80_columns() -> None:
    """Lines to paste and names of files stay whole."""
    facts = replace(GOOD_SITE, slurm=says(config={"KillWait": "300 sec", "JobSubmitPlugins": ""}))
    outcomes = run(CHECKS, facts, is_before=True)
    remedies = Remedies([f for o in outcomes for f in o.findings], facts.slurm, facts.conf)
    whole = [*lines(outcomes, remedies, "/doc/doctor.md"), *listing(CHECKS)]
    shown = list(in_rows(whole, 80))
    assert [one for one in shown if len(one.text) > 80 and one.style != "paste"] == []
    assert [one for one in shown if one.style == "paste"] == [
        one for one in whole if one.style == "paste"
    ]
    words = " ".join(one.text for one in shown).split()
    assert words == " ".join(one.text for one in whole).split()
