"""The page of a leaderboard: one file that needs neither network nor scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from math import log10
from pathlib import Path

from simulator.errors import SettingError
from simulator.leaderboard.board import Board
from simulator.leaderboard.front_picture import front_picture
from simulator.leaderboard.standings import METHOD, RATIOS, Ratio
from simulator.leaderboard.tables import TextTable, interval, not_significant
from simulator.runs.report.page import STYLE, versions

_WIDTH, _ROW, _LABEL, _TEXT = 920, 26, 230, 190
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Headway: leaderboard</title>
<style>
{style}
table {{ border-collapse: collapse; font-size: 13px; }}
th, td {{ padding: 3px 12px; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th.word, td.word {{ text-align: left; font-weight: inherit; }}
thead th {{ font-weight: 650; }}
code, li {{ overflow-wrap: anywhere; }}
.ratios {{ width: 920px; font-size: 13px; }}
.ratios text {{ fill: var(--ink); }} .ratios line {{ stroke: var(--soft); }}
.ratios .bar {{ stroke: var(--accent); stroke-width: 2; }}
.ratios circle {{ fill: var(--accent); }}
.front {{ width: 900px; color: var(--ink); }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def write_page(path: Path, board: Board) -> None:
    """Write the page. Raises SettingError if it cannot be written."""
    try:
        path.write_text(page(board), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"{path}: cannot be written ({error.strerror}); give another --out") from error


def page(board: Board) -> str:
    """Return the page of that leaderboard."""
    made = ", ".join(f"{name} {version}" for name, version in versions().items())
    parts = [
        "<header><div class='words'><h1>Leaderboard</h1>",
        f"<p class='lead'>{escape(board.says())}.</p></div></header>",
        *(f"<p class='note'>{escape(note)}</p>" for note in board.notes()),
    ]
    for number, table in enumerate(board.tables()):
        parts.append(f"<section class='card'>{_table(table)}</section>")
        if not number and board.has_front:
            parts.append(_front(board))
        if not number:
            parts.append(_differences(board))
    parts.append(
        f"<section class='card'><h2>Method</h2><p>{escape(METHOD)}</p><p><code>{escape(board.command)}</code></p>"
        f"<p class='note'>{escape(made)}</p></section>"
    )
    style = (files("simulator.runs.report") / "assets" / STYLE).read_text(encoding="utf-8")
    return _PAGE.format(style=style, body="\n".join(parts))


def _table(table: TextTable) -> str:
    head = "".join(
        f"<th scope='col'{_word(place < table.names)}>{escape(word)}</th>" for place, word in enumerate(table.head)
    )
    rows = "".join(f"<tr>{_cells(row, table.names)}</tr>" for row in table.rows)
    note = f"<p class='note'>{escape(table.note)}</p>" if table.note else ""
    whole = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<h2>{escape(table.title)}</h2>{note}{_scrolled(table.title, whole)}"


def _scrolled(name: str, content: str) -> str:
    """Return the content as a region that scrolls where the page is narrow; its text keeps its size."""
    return f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(name)}'>{content}</div>"


def _cells(row: Sequence[str], names: int) -> str:
    first, *rest = row
    others = "".join(f"<td{_word(place < names)}>{escape(cell)}</td>" for place, cell in enumerate(rest, 1))
    return f"<th scope='row' class='word'>{escape(first)}</th>{others}"


def _word(yes: bool) -> str:
    return " class='word'" if yes else ""


def _front(board: Board) -> str:
    """Return the picture of the fronts, which scrolls where the page is narrow."""
    return (
        "<section class='card'><h2>Average JCT against p99, makespan and fairness</h2>"
        "<p class='note'>Filled: on the front. Hollow: another policy is at least as good in both figures.</p>"
        f"{_scrolled('Picture of the Pareto fronts', front_picture(board.standings.table()))}</section>"
    )


def _differences(board: Board) -> str:
    """Return the picture of the average JCT against the first policy, and which differences are not significant."""
    standings = board.standings
    lines = not_significant(standings)
    if not lines:
        return ""
    first = standings.policies[0]
    ratios = [
        (each.policy, ratio)
        for each in standings.table()
        if each.policy != first and (ratio := standings.ratio(each.policy, first, RATIOS[0])) is not None
    ]
    said = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return (
        f"<section class='card'><h2>Average JCT against {escape(first)}</h2>"
        f"{_scrolled('Picture of the average JCT', _picture(ratios))}"
        f"<h3>Differences that are not significant</h3><ul>{said}</ul></section>"
    )


def _picture(ratios: Sequence[tuple[str, Ratio]]) -> str:
    """Return the ratios with their intervals on a logarithmic axis, as SVG."""
    ends = [
        1.0,
        *(end for _, ratio in ratios for end in (ratio.mean, ratio.low or ratio.mean, ratio.high or ratio.mean)),
    ]
    low, high = log10(min(ends)) - 0.02, log10(max(ends)) + 0.02
    scale = (_WIDTH - _LABEL - _TEXT) / (high - low)

    def at(value: float) -> float:
        return round(_LABEL + (log10(value) - low) * scale, 1)

    height = _ROW * len(ratios) + 8
    parts = [f"<line x1='{at(1)}' x2='{at(1)}' y1='0' y2='{height}' stroke-dasharray='3 3'/>"]
    for row, (policy, ratio) in enumerate(ratios):
        y = _ROW * row + _ROW / 2 + 4
        if ratio.low is not None and ratio.high is not None:
            parts.append(f"<line class='bar' x1='{at(ratio.low)}' x2='{at(ratio.high)}' y1='{y}' y2='{y}'/>")
        parts.append(
            f"<circle cx='{at(ratio.mean)}' cy='{y}' r='4.5'/><text x='0' y='{y + 4}'>{escape(policy[:34])}</text>"
        )
        parts.append(f"<text x='{_WIDTH}' y='{y + 4}' text-anchor='end'>{escape(interval(ratio))}</text>")
    title = "Ratios of the average JCT with 95 % intervals, on a logarithmic axis; the dashed line is 1"
    return f"<svg class='ratios' viewBox='0 0 {_WIDTH} {height}' role='img' aria-label='{title}'>{''.join(parts)}</svg>"
