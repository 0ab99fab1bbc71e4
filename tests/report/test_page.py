"""The HTML page: its text, and its rendering in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from browsing import browser
from build import NOW, after
from report.made_up import HOSTILE, totals
from slurm_hooks.history.harvest.totals import Sample, Share, Totals
from slurm_hooks.history.harvest.values import Delay
from slurm_hooks.history.questions import SAMPLES
from slurm_hooks.model import Of
from slurm_hooks.report.harvest_charts import picture
from slurm_hooks.report.harvest_html import MOST_ROWS, page
from slurm_hooks.report.harvest_text import tables


class Reader(HTMLParser):
    """Counts elements, and keeps the text of captions and cells and every address."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: dict[str, int] = {}
        self.addresses: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        values = dict(attrs)
        self.addresses += [values[key] or "" for key in ("src", "href") if key in values]
        if values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_every_table_is_on_the_page_and_no_file_is_loaded() -> None:
    sums = totals()
    reader = read(page(sums))
    assert reader.counts["caption"] == reader.counts["table"] == len(tables(sums)) == 8
    assert [address for address in reader.addresses if not address.startswith("#")] == []
    assert reader.counts["svg"] == 5
    assert len(page(sums)) < 300_000  # fit for a mail
    assert "default-src 'none'" in reader.policy


def busy_month() -> Totals:
    """All reasons at every point of the pictures, thousands of users, and of late jobs."""
    return replace(
        totals(),
        samples=tuple(
            Sample(after(n * 7200), 9.3 + n % 7, 20.1, 1.0, dict.fromkeys(Of.IDLE.whys, 1 + n % 5))
            for n in range(SAMPLES)
        ),
        users=tuple(Share(f"user{n}", 3600.0 * n, 1, 5, 0) for n in range(5000, 0, -1)),
        delays=tuple(Delay(str(n), NOW, after(900), 30_000.0 - n) for n in range(30_000)),
    )


def test_the_page_of_a_busy_month_fits_into_a_mail() -> None:
    text = page(busy_month())
    assert len(text.encode()) < 1_500_000
    assert "30000 of" in text
    assert text.count("<td>user") == MOST_ROWS
    assert f"{30_000 - MOST_ROWS:,} more: --json" in text


def test_names_are_text() -> None:
    text = page(totals())
    assert HOSTILE not in text
    assert read(text).counts.get("img", 0) == 0
    assert text.count("&lt;/script&gt;&lt;script&gt;") >= 2


def test_a_machine_without_an_idle_node_has_no_chart_of_idle_nodes() -> None:
    full = replace(totals(), idle={}, samples=tuple(replace(s, idle={}) for s in totals().samples))
    assert "Nodes over time" in page(full)
    assert "Idle nodes, and why" not in page(full)


def test_a_span_without_ticks_is_a_page_without_charts() -> None:
    nothing = replace(
        totals(), first=None, last=None, users=(), samples=(), idle={}, ends=(), node_s=0.0
    )
    text = page(nothing)
    assert len(text) < 20_000
    assert "the ledger has no tick" in text


def test_the_picture(tmp_path: Path) -> None:
    picture(tmp_path / "r.of.it", totals())
    assert (tmp_path / "r.of.it").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "r.of.it").stat().st_size > 20_000


def written(place: Path, sums: Totals) -> str:
    path = place / "report.html"
    path.write_text(page(sums))
    return f"file://{path}"


@pytest.mark.browser
def test_a_browser_draws_every_chart_without_complaint(tmp_path: Path) -> None:
    dom, console = browser(tmp_path, "--dump-dom", written(tmp_path, totals()))
    body = dom.partition("</head>")[2]
    assert console == []
    assert len(re.findall(r"<svg ", body)) == 5
    assert len(re.findall(r'<g id="FillBetweenPolyCollection_', body)) == 4 + 2
    assert "node-hours" in body


@pytest.mark.browser
def test_a_browser_says_so_if_the_page_is_wrong(tmp_path: Path) -> None:
    """The check of the console can fail: a script, and something to load."""
    path = tmp_path / "broken.html"
    text = page(totals()).replace("</main>", "<script>nothing.here()</script></main>")
    path.write_text(text.replace("</main>", "<img src='http://127.0.0.1:9/x.png'></main>"))
    _, console = browser(tmp_path, "--dump-dom", f"file://{path}")
    for kind in ("script", "img"):
        assert any("Content Security Policy" in line and f"{kind}-src" in line for line in console)


@pytest.mark.browser
def test_a_screenshot_is_no_empty_page(tmp_path: Path) -> None:
    path = tmp_path / "page.png"
    address = written(tmp_path, totals())
    browser(tmp_path, "--window-size=1240,1500", f"--screenshot={path}", address)
    assert path.stat().st_size > 60_000
