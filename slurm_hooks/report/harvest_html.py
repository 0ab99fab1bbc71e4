"""The report as an HTML file: charts, and every number in a table beside them. The page loads no
other file, and tells the browser so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from slurm_hooks import __version__
from slurm_hooks.history.harvest.totals import Totals
from slurm_hooks.report.harvest_charts import charts
from slurm_hooks.report.harvest_text import figures, headline, tables
from slurm_hooks.report.tables import Rows

MOST_ROWS = 200  # of a table, so that the page of a busy month can be mailed
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; background: #f3f5f7; margin: 0; }
main { max-width: 1240px; margin: 0 auto; padding: 24px 20px 48px; }
h1 { font-size: 26px; margin: 0 0 4px; }
h2 { font-size: 17px; margin: 0; }
.span, .note { color: #4a5663; margin: 0 0 18px; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px;
  margin: 0 0 18px; }
.figure, section { background: white; border: 1px solid #dde2e7; border-radius: 8px; }
.figure { padding: 14px 16px; }
.figure b { display: block; font-size: 26px; line-height: 1.2; }
.figure span { color: #4a5663; font-size: 13px; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 370px), 1fr));
  gap: 14px; margin: 0 0 18px; }
.tables { grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); }
section { padding: 14px 16px; min-width: 0; }
section.wide { grid-column: 1 / -1; }
svg { width: 100%; height: auto; }
section p { margin: 0 0 6px; color: #4a5663; font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
caption { text-align: left; font-weight: 600; font-size: 17px; padding: 0 0 6px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #e8ecef; }
th { color: #4a5663; font-weight: 600; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
ul { margin: 0 0 18px; padding-left: 20px; }
footer { color: #4a5663; font-size: 13px; }
"""


def page(totals: Totals) -> str:
    """The whole file. Raises MissingProgram without matplotlib."""
    first, *rest = headline(totals)
    pictures = (
        f'<section{" class=wide" if chart.is_wide else ""} aria-label="{escape(chart.title)}">'
        f"<h2>{escape(chart.title)}</h2><p>{escape(chart.caption)}</p>{chart.svg}</section>"
        for chart in charts(totals)
    )
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Use of idle nodes</title><style>{_STYLE}</style>",
            "</head><body><main><h1>Use of idle nodes</h1>",
            f'<p class="span">{escape(first)}.</p>',
            _figures(totals),
            f"<ul>{''.join(f'<li>{escape(line)}.</li>' for line in rest)}</ul>",
            f'<div class="grid">{"".join(pictures)}</div>',
            f'<div class="grid tables">{"".join(_tables(tables(totals)))}</div>',
            f"<footer>slurm-malleable {escape(__version__)}, `malleable report`. Hours of jobs "
            "are whole totals.</footer></main></body></html>\n",
        )
    )


def _figures(totals: Totals) -> str:
    parts = (
        f'<div class="figure"><b>{escape(number)}</b><span>{escape(text)}</span></div>'
        for number, text in figures(totals)
    )
    return f'<div class="figures">{"".join(parts)}</div>'


def _tables(tables: Iterable[Rows]) -> Iterable[str]:
    for rows in tables:
        numeric = [name.startswith(">") for name in rows.columns]
        head = "".join(
            f'<th scope="col"{_class(is_number)}>{escape(name.lstrip(">"))}</th>'
            for name, is_number in zip(rows.columns, numeric)
        )
        wide = " class=wide" if len(rows.columns) > 6 else ""
        yield (
            f'<section{wide}><div class="scroll"><table><caption>{escape(rows.title)}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{_body(rows, numeric)}</tbody></table></div>"
            f"{_left_out(rows)}</section>"
        )


def _body(rows: Rows, numeric: Sequence[bool]) -> str:
    return "".join(
        "<tr>"
        + "".join(f"<td{_class(n)}>{escape(word)}</td>" for word, n in zip(row, numeric))
        + "</tr>"
        for row in rows.rows[:MOST_ROWS]
    )


def _left_out(rows: Rows) -> str:
    more = len(rows.rows) - MOST_ROWS
    return f"<p>... {more:,} more: --json</p>" if more > 0 else ""


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""
