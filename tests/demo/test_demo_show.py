"""What is printed, without and with a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from made_up import ABOUT, good, show, verdict
from rich.console import Console


def told(width: int = 120) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, highlight=False), text


def frame(samples: int, now: float) -> show.Frame:
    run = good()
    return show.Frame(replace(run, with_it=run.with_it[:samples]), now, 50, 480)


def test_plain_lines_come_once_and_have_no_escape_codes():
    console, text = told()
    with show.Plain(console) as view:
        view.update(frame(3, 40.0))
        view.update(frame(3, 41.0))
    lines = text.getvalue().splitlines()
    assert "    4 s  grow 3_0 on n6: hole open" in lines
    assert len(lines) == len(set(lines))
    assert "\x1b" not in text.getvalue()


def test_the_summary_says_sizes_delays_checks_and_violations():
    report = verdict.report(good(), ABOUT)
    for faults in ([], ["fragment 3_0 overstayed"]):
        report["violations"] += faults
        console, text = told()
        show.summary(report, console)
        said = text.getvalue()
        for words in ("preempted by Slurm", "planned", "+1 s", "accuracy 0.97"):
            assert words in said
        assert "FAILED" not in said
        assert ("VIOLATION: fragment 3_0 overstayed" in said) is bool(faults)
