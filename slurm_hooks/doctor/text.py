"""Outcomes as lines for people and as plain data for programs. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from slurm_hooks.doctor.finding import Category, Check
from slurm_hooks.doctor.remedies import Remedies, Remedy
from slurm_hooks.doctor.run import Outcome, closing, exit_code
from slurm_hooks.doctor.todo import ToDo, to_do
from slurm_hooks.report.tables import folded

WIDTH = 80
OLD_WIDTH = 40
ON_EACH_HOST = ("slurm.conf", "plugstack.conf")
STYLES = ("ok", "warning", "error", "warning")  # of the last line, by exit code
_INDENT = "         "
_UNBROKEN: Mapping[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


@dataclass(frozen=True)
class Shown:
    """A line to print. `style` is ok, note, warning, error, skipped, category, paste or empty."""

    text: str
    style: str = ""


def lines(outcomes: Sequence[Outcome], remedies: Remedies, manual: str) -> Iterator[Shown]:
    """A line for each check, by category, with findings in full, and all steps at the end."""
    printed: dict[Remedy, str] = {}
    for category in Category:
        group = [outcome for outcome in outcomes if outcome.check.category is category]
        if group:
            yield Shown(category.value, "category")
        for reason, alike in groupby(group, lambda outcome: outcome.skipped):
            if reason:
                yield from _skipped(reason, [outcome.check.id for outcome in alike])
            else:
                for outcome in alike:
                    yield from _outcome(outcome, remedies, manual, printed)
        if group:
            yield Shown("")
    todo = to_do(outcomes, remedies)
    if todo.is_worth_telling:
        yield from _to_do(todo)
    yield Shown(closing(outcomes), STYLES[exit_code(outcomes)])


def in_rows(shown: Iterable[Shown], width: int) -> Iterator[Shown]:
    """The lines in a terminal of that width. Lines to paste and names of files are not cut."""
    for line in shown:
        rows = [line.text] if line.style == "paste" else folded(line.text, width)
        yield from (Shown(row, line.style) for row in rows)


def _outcome(
    outcome: Outcome, remedies: Remedies, manual: str, printed: dict[Remedy, str]
) -> Iterator[Shown]:
    """The lines of an outcome. `printed` maps each printed remedy to its check."""
    check = outcome.check
    if not outcome.findings:
        yield Shown(f"{'ok':8} {check.id}: {check.title}", "ok")
    for finding in outcome.findings:
        word = finding.severity.value
        yield Shown(f"{word:8} {check.id}: {finding.seen}", word)
        if finding.advice:
            yield from _wrapped("do", finding.advice)
        wanted = remedies.of(finding)
        for name in dict.fromkeys(printed[remedy] for remedy in wanted if remedy in printed):
            yield Shown(f"{_INDENT}as for {name}")
        for remedy in wanted:
            if remedy not in printed:
                yield from _remedy(remedy)
                printed[remedy] = check.id
    if outcome.findings:
        yield from _reasons(check, manual)


def _reasons(check: Check, manual: str) -> Iterator[Shown]:
    yield from _wrapped("why", check.why)
    if see := _see(check, manual):
        yield Shown(f"{_INDENT}see  {see}")


def _see(check: Check, manual: str) -> str:
    """The address of the check on the page of all checks, which has no check of a site."""
    return "" if check.category is Category.SITE else f"{manual}#{check.id}"


def _skipped(reason: str, ids: Sequence[str]) -> Iterator[Shown]:
    """A line for neighbouring checks that were skipped for the same reason."""
    text = f"{'skipped':8} {', '.join(ids)}: {reason}"
    for line in textwrap.wrap(text, WIDTH, subsequent_indent=_INDENT, **_UNBROKEN):
        yield Shown(line, "skipped")


def _remedy(remedy: Remedy) -> Iterator[Shown]:
    if remedy.command:
        who = f" as {remedy.who}" if remedy.who else ""
        yield Shown(f"{_INDENT}run{who}:")
        yield Shown(f"{_INDENT}    {remedy.command}", "paste")
        return
    where = f"{_INDENT}in {remedy.file}"
    if remedy.number:
        where += f", instead of line {remedy.number}"
    yield Shown(where + (f", {remedy.place}:" if remedy.place else ":"))
    for line in remedy.line.splitlines():
        yield Shown(f"{_INDENT}    {line}", "paste")
    if remedy.then:
        yield Shown(f"{_INDENT}then {remedy.then}")


def _to_do(todo: ToDo) -> Iterator[Shown]:
    yield Shown("to do, in this order", "category")
    for one in todo.files:
        numbered = sum(remedy.number > 0 for remedy in one.lines) > 1
        yield Shown(f"  in {one.file}{', from its end up' if numbered else ''}:")
        for where, alike in groupby(one.lines, _where):
            yield Shown(f"    {where}:")
            for remedy in alike:
                for line in remedy.line.splitlines():
                    yield Shown(f"      {line}", "paste")
    if any(Path(one.file).name in ON_EACH_HOST for one in todo.files):
        yield Shown(f"  copy {' and '.join(ON_EACH_HOST)} to every node that is not configless")
    yield from _commands(todo.first)
    if todo.then:
        yield Shown(f"  then {', '.join(todo.then)}")
    yield from _commands(todo.commands)
    if todo.in_words:
        yield Shown(f"  and follow the advice above on {', '.join(todo.in_words)}")
    yield Shown("")


def _where(remedy: Remedy) -> str:
    if not remedy.number:
        return remedy.place or "add"
    old = textwrap.shorten(remedy.instead_of, OLD_WIDTH, placeholder=" ...")
    last = remedy.number + remedy.lines - 1
    lines = f"lines {remedy.number} to {last}" if remedy.lines > 1 else f"line {remedy.number}"
    return f"instead of {lines} ({old})"


def _commands(commands: Sequence[Remedy]) -> Iterator[Shown]:
    for who, alike in groupby(commands, lambda remedy: remedy.who):
        yield Shown(f"  run as {who}:" if who else "  run:")
        for remedy in alike:
            yield Shown(f"      {remedy.command}", "paste")


def _wrapped(word: str, text: str) -> Iterator[Shown]:
    rest = _INDENT + "     "
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=f"{_INDENT}{word:4} ", subsequent_indent=rest, **_UNBROKEN
    ):
        yield Shown(line)


def data(outcomes: Sequence[Outcome], remedies: Remedies, manual: str) -> dict[str, Any]:
    """The outcomes as plain data. New versions only add keys."""
    return {
        "exit_code": exit_code(outcomes),
        "summary": closing(outcomes),
        "checks": [_check_data(outcome, remedies, manual) for outcome in outcomes],
        "to_do": _to_do_data(to_do(outcomes, remedies)),
    }


def _check_data(outcome: Outcome, remedies: Remedies, manual: str) -> dict[str, Any]:
    check = outcome.check
    return {
        "id": check.id,
        "category": check.category.value,
        "result": outcome.word,
        "skipped_because": outcome.skipped,
        "why": check.why,
        "see": _see(check, manual),
        "findings": [
            {
                "severity": finding.severity.value,
                "seen": finding.seen,
                "advice": finding.advice,
                "remedies": [_remedy_data(remedy) for remedy in remedies.of(finding)],
            }
            for finding in outcome.findings
        ],
    }


def _remedy_data(remedy: Remedy) -> dict[str, Any]:
    return {key: value for key, value in asdict(remedy).items() if value}


def _to_do_data(todo: ToDo) -> dict[str, Any]:
    return {
        "files": [
            {"file": one.file, "lines": [_remedy_data(remedy) for remedy in one.lines]}
            for one in todo.files
        ],
        "first": [_remedy_data(remedy) for remedy in todo.first],
        "then": list(todo.then),
        "run": [_remedy_data(remedy) for remedy in todo.commands],
        "in_words": list(todo.in_words),
    }


def one_liners(outcomes: Sequence[Outcome], remedies: Remedies) -> tuple[str, ...]:
    """A line for each warning and error: the observation, its harm, and the line to write."""
    rows = []
    for outcome in outcomes:
        for finding in outcome.findings:
            if finding.severity.value != "note":
                written = "; ".join(_short(remedy) for remedy in remedies.of(finding))
                rows.append(f"{finding.seen}: {outcome.check.why} {written}".strip())
    return tuple(rows)


def _short(remedy: Remedy) -> str:
    return f"Run {remedy.command}" if remedy.command else f"Write {remedy.line}"


def listing(checks: Sequence[Check]) -> Iterator[Shown]:
    """All checks by category, a line each."""
    for category in Category:
        group = [check for check in checks if check.category is category]
        if group:
            yield Shown(category.value, "category")
        for check in group:
            yield Shown(f"  {check.id:20} {check.title}")


def explained(checks: Sequence[Check], manual: str) -> Iterator[Shown]:
    """The text of each check, and its place on the page of all checks."""
    for check in checks:
        yield Shown(f"{check.id} ({check.category.value})", "category")
        yield from _wrapped("fine", f"if {check.title}")
        yield from _reasons(check, manual)


def listed(checks: Sequence[Check], manual: str) -> list[dict[str, str]]:
    """Each check as plain data, without a look at the site."""
    return [
        {
            "id": check.id,
            "category": check.category.value,
            "title": check.title,
            "why": check.why,
            "see": _see(check, manual),
        }
        for check in checks
    ]
