"""Carry out the runs of a leaderboard in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from simulator.leaderboard.grid import Cell, GridOptions
from simulator.results.metrics import Figure, summary
from simulator.runs.process_pool import in_parallel
from simulator.runs.progress import OnProgress, collect_seldom, drive
from simulator.runs.scenario import fallback_note, opened_policy
from simulator.runs.warm_starts import warm_starts


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy on one part of a trace. Runs of different policies with equal other fields form a pair."""

    policy: str
    trace: str
    part: str
    """Jobs of the trace whose figures these are."""
    cluster: str
    load: float
    """Work over capacity of the whole trace."""
    named_load: float | None
    """The load that was asked for; None: the trace's own."""
    estimates: str
    figures: Mapping[str, Figure]
    note: str = ""

    @property
    def block(self) -> tuple[str, str]:
        """The jobs: runs of different blocks are independent of each other."""
        return self.trace, self.part

    @property
    def setting(self) -> tuple[float | None, str]:
        """Load and estimates: within a block, the same jobs are run in each setting, on each cluster."""
        return self.named_load, self.estimates


def perform(
    options: GridOptions, cells: Sequence[Cell], on_progress: OnProgress, processes: int | None = None
) -> list[Run]:
    """Run every policy in every cell, each pair in a process of its own. Raises SimulatorError, PolicyError."""
    work = {f"{policy} on {cell.name}": (policy, cell) for cell in cells for policy in options.policies}

    def do(label: str, report: OnProgress) -> list[Run]:
        return _runs(*work[label], options.warm_up, report)

    weights = {label: float(len(cell.scenario.trace)) for label, (_, cell) in work.items()}
    found = in_parallel(list(work), do, _weighted(weights, on_progress), processes)
    return [run for runs in found for run in runs]


def _runs(policy: str, cell: Cell, rule: str, on_progress: OnProgress) -> list[Run]:
    """Run one policy on all parts of a cell; the rule runs the trace once, and each part begins on a copy of its cluster."""
    collect_seldom()
    done: list[Run] = []
    scenario, parts = cell.scenario, cell.parts
    with opened_policy(policy, scenario.options, lenient=True) as first:
        simulation = scenario.under_rule(rule, first)
    for start in warm_starts(simulation, parts):
        with opened_policy(policy, scenario.options, lenient=True) as made:
            begin = time.perf_counter()
            run = start.simulation(made)
            drive(run, lambda share: on_progress((len(done) + share) / len(parts)))
            figures = summary(start.result(run, policy, time.perf_counter() - begin, dropped=cell.dropped))
            note = fallback_note(made)
        done.append(
            Run(
                policy=policy,
                trace=cell.trace,
                part=start.part.text(),
                cluster=cell.cluster,
                load=cell.offered.load or 0.0,
                named_load=cell.load,
                estimates=cell.estimates,
                figures=figures,
                note=note,
            )
        )
    return done


def _weighted(weights: Mapping[str, float], on_progress: OnProgress) -> Callable[[str, float], None]:
    """Return an `on_progress` of `in_parallel` that reports the mean share, each name by its weight."""
    shares = dict.fromkeys(weights, 0.0)
    total = sum(weights.values())

    def add(name: str, share: float) -> None:
        shares[name] = share
        on_progress(sum(weights[each] * shares[each] for each in shares) / total)

    return add
