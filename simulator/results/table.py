"""Figures as tables: their labels, their format, and which value is better."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from policies.documents import printable
from simulator.results.metrics import Figure

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MISSING = "–"  # noqa: RUF001 - a dash, where nothing was measured
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min"))


def time_text(seconds: float) -> str:
    """Return seconds in a suitable unit."""
    for length, unit in _UNITS:
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:,.2f} {unit}"
    return f"{seconds:,.3g} s" if abs(seconds) < 10 else f"{seconds:,.1f} s"


def share_text(share: float) -> str:
    """Return a share in percent."""
    return f"{share:.1%}"


def ratio_text(ratio: float) -> str:
    """Return a ratio with at least three digits."""
    return f"{ratio:,.3f}" if ratio < 100 else f"{ratio:,.0f}"


def count_text(count: float) -> str:
    """Return a count with separators."""
    return f"{count:,.0f}"


def ms_text(ms: float) -> str:
    """Return milliseconds, or microseconds below one."""
    return f"{ms * 1000:,.1f} µs" if ms < 1 else f"{ms:,.2f} ms"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of `metrics.summary`."""

    key: str
    label: str
    text: Callable[[float], str]
    better: int = 0
    """-1: the smallest value is best; 1: the largest; 0: neither."""


ROWS = (
    Row("jobs", "jobs", count_text),
    Row("dropped", "dropped, too large", count_text),
    Row("finished", "finished", count_text, 1),
    Row("carried", "there at the begin", count_text),
    Row("carried_avg_s", "average time to finish these", time_text, -1),
    Row("avg_jct_s", "average JCT", time_text, -1),
    Row("p50_jct_s", "median JCT", time_text, -1),
    Row("p90_jct_s", "90th percentile of JCT", time_text, -1),
    Row("p99_jct_s", "99th percentile of JCT", time_text, -1),
    Row("avg_service_s", "average service time (no queueing)", time_text, -1),
    Row("avg_wait_s", "average wait, all waits of a job", time_text, -1),
    Row("avg_first_wait_s", "average wait until the first start", time_text, -1),
    Row("makespan_s", "makespan", time_text, -1),
    Row("avg_slowdown", "average slowdown (JCT / ideal)", ratio_text, -1),
    Row("p99_slowdown", "99th percentile of slowdown", ratio_text, -1),
    Row("effectiveness", "effectiveness (ideal / JCT)", ratio_text, 1),
    Row("utilization", "GPUs busy", share_text, 1),
    Row("work_utilization", "GPUs' work done", share_text, 1),
    Row("fragmentation", "fragmentation (SCHED2, eq. 1)", ratio_text, -1),
    Row("avg_contention_sensitivity", "contention sensitivity, mean", ratio_text, -1),
    Row("worst_contention_sensitivity", "contention sensitivity, worst", ratio_text, -1),
    Row("slowed_share", "jobs slowed down by 1 % or more", share_text, -1),
    Row("slowed_by", "mean slowdown of these", share_text, -1),
    Row("shared_links_share", "jobs that shared links (Crux: 36.3 %)", share_text, -1),
    Row("shared_links_gpu_share", "their share of GPU time (Crux: 51 %)", share_text, -1),
    Row("avg_fairness", "finish-time fairness (Themis), mean", ratio_text, -1),
    Row("worst_fairness", "finish-time fairness, worst", ratio_text, -1),
    Row("preemptions", "preemptions", count_text, -1),
    Row("moves", "moves", count_text, -1),
    Row("resizes", "resizes", count_text),
    Row("failures", "killed by failures", count_text, -1),
    Row("overhead_gpu_s", "GPU time lost by stops", time_text, -1),
    Row("decisions", "decisions", count_text),
    Row("guarded_share", "decisions by a guard", share_text, -1),
    Row("outside_share", "decisions outside of the trained range", share_text, -1),
    Row("guarded_inside_share", "by a guard, of those inside", share_text, -1),
    Row("decision_p50_ms", "decision takes, median", ms_text, -1),
    Row("decision_p99_ms", "decision takes, 99th percentile", ms_text, -1),
    Row("wall_s", "simulated in", time_text),
    Row("jobs_per_s", "jobs simulated per second", count_text),
)


def text_of(row: Row, value: Figure) -> str:
    """Return the figure as text."""
    return MISSING if value is None else row.text(value)


def best(row: Row, values: Sequence[Figure]) -> set[int]:
    """Return the places of the best values; empty if no value is better or all are equal."""
    known = [value for value in values if value is not None]
    if not row.better or len(set(known)) < 2:
        return set()
    wanted = max(known) if row.better > 0 else min(known)
    return {place for place, value in enumerate(values) if value == wanted}


def shown(summaries: Sequence[Mapping[str, Figure]]) -> list[Row]:
    """Return the rows to show: neither figures that no run has, nor counts that are 0 in all runs."""
    return [row for row in ROWS if any(summary.get(row.key) for summary in summaries)]


def lines_of(summary: Mapping[str, Figure]) -> list[str]:
    """Return the figures of one run as lines of text."""
    rows = shown([summary])
    width = max(len(row.label) for row in rows) + 1
    return [f"{row.label + ':':<{width}} {text_of(row, summary[row.key])}" for row in rows]


def plain_console(width: int | None = None) -> Console:
    """Return a console that shows every text as it is: names of policies and of traces may look like rich's markup.

    `width` is the one where the output is no terminal; None: rich's own.
    """
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    return console if console.is_terminal or width is None else Console(markup=False, emoji=False, width=width)


def title_of(name: str, rest: str = "") -> Text:
    """Return a title that begins with a name in bold; both without control characters."""
    from rich.text import Text

    return Text.assemble((printable(name), "bold"), printable(rest))


def table_of(names: Sequence[str], summaries: Sequence[Mapping[str, Figure]], title: Text) -> Table:
    """Return the figures of several runs side by side, the best in bold."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", title=title, title_justify="left", title_style="")
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for row in shown(summaries):
        values = [summary.get(row.key) for summary in summaries]
        winners = best(row, values)
        cells = [
            Text(text_of(row, value), style="bold green" if place in winners else "")
            for place, value in enumerate(values)
        ]
        table.add_row(row.label, *cells)
    return table
