"""A leaderboard that has been run, as JSON, Markdown and text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from simulator.leaderboard.front import AGAINST, front, front_table
from simulator.leaderboard.grid import Cell, GridOptions
from simulator.leaderboard.perform import Run
from simulator.leaderboard.standings import METHOD, Standings
from simulator.leaderboard.tables import TextTable, not_significant, tables
from simulator.runs.report.page import versions
from simulator.slowdown.registry import NODE_SPEED, NONE, model_of


@dataclass(frozen=True, eq=False)
class Board:
    """The results of a leaderboard, and the command that makes it again."""

    options: GridOptions
    cells: Sequence[Cell]
    runs: Sequence[Run]
    command: str
    has_front: bool = False
    """Add the Pareto fronts of the policies."""

    @property
    def standings(self) -> Standings:
        """The figures."""
        return Standings(self.runs, self.options.policies)

    def says(self) -> str:
        """Return how the runs begin and end, in a sentence."""
        count, rule = self.options.windows, self.options.warm_up
        runs = "one run of each trace" if count == 1 else f"{count} windows of each trace"
        speeds = any(cell.scenario.cluster.topology.speed for cell in self.cells)
        own = any(model_of(text) in (NODE_SPEED, NONE) for text in self.options.slowdown)
        return (
            f"{runs}, from a cluster as full as {rule} has left it by then (the first tenth of the jobs, or all that were "
            f"submitted before a window) until every job has finished; slowdown {', '.join(self.options.slowdown)}"
            + (f", and {NODE_SPEED} where nodes differ in speed" if speeds and not own else "")
            + (f"; models drawn from the mix {self.options.models}" if self.options.models else "")
        )

    @property
    def left_out(self) -> dict[str, dict[str, int]]:
        """Number of rows of each trace's log that are no jobs, by reason."""
        return {cell.trace: dict(cell.left_out) for cell in self.cells}

    def notes(self) -> list[str]:
        """Return remarks: rows of traces that were left out, jobs that policies left, decisions of a fallback."""
        read = [
            f"{trace}: left out: {count:,} {why}"
            for trace, rows in self.left_out.items()
            for why, count in rows.items()
        ]
        left = [
            f"{policy} left {count:,} jobs unfinished, so it has no figures"
            for policy, count in self.standings.unfinished.items()
            if count
        ]
        return read + left + [f"{run.policy} on {run.trace}: {run.note}" for run in self.runs if run.note]

    def tables(self) -> list[TextTable]:
        """Return all tables."""
        standings = self.standings
        first, *others = tables(standings, self.cells)
        return [first, *([front_table(standings.table())] if self.has_front else []), *others]

    def as_json(self) -> str:
        """Return one JSON object with every run, mean, pair and load."""
        standings = self.standings
        found = {
            "command": self.command,
            "versions": versions(),
            "runs_are": self.says(),
            "method": METHOD,
            "policies": [asdict(each) for each in standings.table()],
            "unfinished": standings.unfinished,
            "blocks": standings.num_blocks,
            "pairs": [
                {"metric": metric, "policy": policy, "other": other, **ratio.as_json()}
                for metric, policy, other, ratio in standings.pairs()
            ],
            "loads": [
                {"trace": cell.trace, "cluster": cell.cluster, "named": cell.load, "load": cell.offered.load}
                | asdict(cell.offered)
                | {"jobs": len(cell.scenario.trace), "dropped": cell.dropped, "estimates": cell.estimates}
                for cell in self.cells
            ],
            "left_out": self.left_out,
            "runs": [asdict(run) for run in self.runs],
        } | ({"fronts": self._fronts()} if self.has_front else {})
        return json.dumps(found, indent=1, allow_nan=False)

    def _fronts(self) -> dict[str, list[str]]:
        """Return the policies on each front, by the figure that stands against the average JCT."""
        table = self.standings.table()
        return {against.name: [each.policy for each in front(table, against)] for against in AGAINST}

    def markdown(self) -> str:
        """Return all tables, for documents; the last one names the runs."""
        parts = [_markdown(table) for table in self.tables()]
        if lines := not_significant(self.standings):
            parts.append("Differences that are not significant:\n\n" + "".join(f"- {line}\n" for line in lines))
        parts += [f"{note}\n" for note in self.notes()]
        parts += [f"{METHOD}\n", f"Runs: {self.says()}.\n", f"```sh\n{self.command}\n```\n"]
        return "\n".join(parts)


def _markdown(table: TextTable) -> str:
    head = _line(table.head) + "\n" + _line(["---"] * table.names + ["---:"] * (len(table.head) - table.names))
    note = f"{table.note}\n\n" if table.note else ""
    return f"### {table.title}\n\n{note}{head}\n" + "".join(_line(row) + "\n" for row in table.rows)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
