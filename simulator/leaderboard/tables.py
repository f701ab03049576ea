"""The tables of a leaderboard as text; the terminal, the page and Markdown show the same ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulator.leaderboard.grid import Cell
from simulator.leaderboard.perform import Run
from simulator.leaderboard.standings import CONTENTION, RATIOS, Ratio, Standing, Standings, stops_per_job

_HOUR_S = 3600.0
_NAMES = {"avg_jct_s": "average JCT", "p90_jct_s": "p90 JCT", "p99_jct_s": "p99 JCT", "makespan_s": "makespan"}
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table; the first column has the names of the rows, the others numbers."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    """Number of first columns that have words."""


def tables(standings: Standings, cells: Sequence[Cell]) -> list[TextTable]:
    """Return all tables, the most important first."""
    found = [_standings(standings)]
    if len(standings.policies) > 1:
        found += [_changes(standings)]
        found += [_by_setting(standings)] if len(standings.settings) > 1 else []
    return [*found, _contention(standings), _loads(cells), _runs(standings.runs)]


def not_significant(standings: Standings) -> list[str]:
    """Return a line for each figure with the pairs of policies whose difference is not significant."""
    lines = []
    for metric in RATIOS:
        pairs = [(policy, other, ratio) for each, policy, other, ratio in standings.pairs() if each == metric]
        names = [f"{policy} and {other} ({interval(ratio)})" for policy, other, ratio in pairs if not ratio.significant]
        if pairs:
            lines.append(f"{_NAMES[metric]}: {'; '.join(names) or 'every difference is significant'}")
    return lines


def interval(ratio: Ratio | None) -> str:
    """Return a ratio as a change with its interval: -12.3 % [-20.1, -3.8]."""
    if ratio is None:
        return "-"
    change = f"{_percent(ratio.mean)} %"
    return (
        change
        if ratio.low is None or ratio.high is None
        else f"{change} [{_percent(ratio.low)}, {_percent(ratio.high)}]"
    )


def _percent(ratio: float) -> str:
    percent = 100 * (ratio - 1)
    if abs(percent) < 0.05:
        return "0.0"
    return f"{percent:+,.{1 if abs(percent) < 100 else 0}f}".replace("-", MINUS)


def _standings(standings: Standings) -> TextTable:
    first = next(iter(standings.policies), "")
    rows = tuple(
        (
            each.policy,
            *(hours(each.times_s[metric]) for metric in RATIOS),
            f"{each.stops_per_job:,.2f}",
            f"{each.fairness:,.2f}",
            f"{each.worst_fairness:,.0f}",
            _guarded(each),
            "" if each.policy == first else interval(standings.ratio(each.policy, first, RATIOS[0])),
        )
        for each in standings.table()
    )
    times = tuple(f"{_NAMES[metric]}, h" for metric in RATIOS)
    head = (
        "policy",
        *times,
        "stops a job",
        "fairness rho",
        "worst rho",
        "by a guard (most; inside the trained range)",
        f"average JCT against {first}",
    )
    note = f"Over {len(standings.runs) // max(len(standings.unfinished), 1)} runs of each policy in {standings.num_blocks} blocks."
    return TextTable("Policies", note, head, rows)


def _guarded(standing: Standing) -> str:
    more = f" ({standing.most_guarded_share:.0%}; {standing.guarded_inside_share:.1%})"
    return f"{standing.guarded_share:.1%}" + (more if standing.most_guarded_share else "")


def _changes(standings: Standings) -> TextTable:
    first = standings.policies[0]
    rows = tuple(
        (each.policy, *(interval(standings.ratio(each.policy, first, metric)) for metric in RATIOS))
        for each in standings.table()
        if each.policy != first
    )
    note = "Changes with 95 % intervals; less is better."
    return TextTable(f"Against {first}", note, ("policy", *(_NAMES[metric] for metric in RATIOS)), rows)


def _by_setting(standings: Standings) -> TextTable:
    first, settings = standings.policies[0], standings.settings

    def change(policy: str, setting: tuple[float | None, str]) -> str:
        return interval(standings.ratio(policy, first, RATIOS[0], lambda run: run.setting == setting))

    rows = tuple(
        (each.policy, *(change(each.policy, setting) for setting in settings))
        for each in standings.table()
        if each.policy != first
    )
    head = tuple(f"{_load(load)}, {estimates}" for load, estimates in settings)
    return TextTable(f"Average JCT against {first}, by load and estimates", "", ("policy", *head), rows)


def _contention(standings: Standings) -> TextTable:
    rows = tuple(
        (
            each.policy,
            *("-" if each.contention[name] is None else f"{each.contention[name]:.1%}" for name in CONTENTION),
        )
        for each in standings.table()
    )
    note = (
        "Slowed: a job that takes at least 1 % longer, over its runs, than alone and well placed. For comparison, in the cluster "
        "of Crux (SIGCOMM 24) 36.3 % of the jobs, with 51 % of the GPUs, share links."
    )
    head = ("policy", "jobs slowed", "these by", "jobs that shared links", "their share of GPU time")
    return TextTable("Contention", note, head, rows)


def _loads(cells: Sequence[Cell]) -> TextTable:
    rows = {
        (cell.trace, cell.cluster, _load(cell.load)): (
            "-" if cell.offered.load is None else f"{cell.offered.load:.3f}",
            f"{cell.offered.work_gpu_h:,.0f}",
            f"{cell.offered.capacity_gpu_h:,.0f}",
            f"{cell.offered.within_share:.0%}",
            f"{len(cell.scenario.trace):,}",
            f"{cell.dropped:,}",
            f"{cell.parts[0].begin:,}",
        )
        for cell in cells
    }
    head = (
        *(
            "trace",
            "cluster",
            "load asked for",
            "load",
            "work, GPU h",
            "capacity, GPU h",
            "work that can be done by the end",
        ),
        *("jobs", "dropped, too large", "jobs that fill the cluster"),
    )
    note = "Load: work of all jobs over the capacity of the cluster from the first to the last submission."
    return TextTable("Loads", note, head, tuple((*key, *row) for key, row in rows.items()), 3)


def _runs(runs: Sequence[Run]) -> TextTable:
    head = (
        *("trace", "jobs", "cluster", "load", "estimates", "policy"),
        *(f"{_NAMES[metric]}, h" for metric in RATIOS),
        *("stops a job", "fairness rho", "by a guard", "there at the begin", "h until these finished"),
    )
    return TextTable("Runs", "", head, tuple(_run_rows(runs)), 6)


def _run_rows(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for run in sorted(runs, key=lambda run: (run.block, run.cluster, run.load, run.estimates)):
        figures = run.figures
        yield (
            *(run.trace, run.part, run.cluster, f"{run.load:.2f}", run.estimates, run.policy),
            *(hours(figures[metric]) for metric in RATIOS),
            f"{stops_per_job(run):,.2f}",
            "-" if figures["avg_fairness"] is None else f"{figures['avg_fairness']:,.2f}",
            f"{figures['guarded_share'] or 0:.1%}",
            f"{figures['carried']:,}",
            hours(figures["carried_avg_s"]),
        )


def _load(load: float | None) -> str:
    return "own" if load is None else f"{load:g}"


def hours(seconds: float | None) -> str:
    """Return seconds as hours with two digits; "-" if they are not known."""
    return "-" if seconds is None else f"{seconds / _HOUR_S:,.2f}"
