"""What is printed, without and with a terminal, and the picture."""

from __future__ import annotations

import io
from dataclasses import replace

from made_up import ABOUT, good, show, story, timeline, verdict
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


def test_a_heartbeat_when_nothing_happens():
    console, text = told()
    with show.Plain(console) as view:
        view.update(frame(3, 40.0))
        view.update(frame(3, 59.0))
        before = text.getvalue()
        view.update(frame(3, 61.0))
    assert text.getvalue()[len(before) :] == (
        "   61 s  ... the job works on 4 nodes, step 50 of 480\n"
    )


def test_events_of_a_longer_recording_contain_those_of_a_shorter():
    run = good()
    early = story.events(replace(run, with_it=run.with_it[:5], ticks=run.ticks[:3]))
    assert set(early) <= set(story.events(run))


def test_the_live_picture_fits_80_columns():
    console, text = told(80)
    console.print(show.picture(frame(20, 190.0)))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("n8") and "R" in line for line in lines)


def test_the_summary_says_sizes_delays_and_checks():
    console, text = told()
    show.summary(verdict.report(good(), ABOUT), console)
    said = text.getvalue()
    for words in ("preempted by Slurm", "planned", "+1 s", "accuracy 0.97", "FAILED"):
        assert (words in said) is (words != "FAILED")


def test_a_violation_is_printed():
    report = verdict.report(good(), ABOUT)
    report["violations"].append("fragment 3_0 overstayed")
    console, text = told()
    show.summary(report, console)
    assert "VIOLATION: fragment 3_0 overstayed" in text.getvalue()


def test_the_timeline_is_a_png(tmp_path):
    path = timeline.draw(good(), tmp_path / "timeline.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_bars_have_no_gaps_and_stack_counts_every_node():
    run = good()
    bars = timeline.bars(run, "n6")
    assert [name for _, _, name in bars] == [
        "idle", "malleable", "urgent", "malleable", "urgent",
    ]  # fmt: skip
    assert all(one[1] == two[0] for one, two in zip(bars, bars[1:]))
    _, counts = timeline.stack(run)
    assert {sum(column) for column in zip(*counts.values())} == {8}
