"""The runs of a leaderboard: every trace on every cluster, at every load, with every quality of estimates.

A load is reached by scaling the times of submission: the jobs stay as they are, and the gaps between them keep their ratios.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from policies.api import parse_policy
from simulator.cluster.cluster import parse_cluster
from simulator.engine.job_sizes import JobSizes
from simulator.errors import SettingError, TraceError
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario, make_policy
from simulator.runs.warm_starts import RULE, WARM_UP, Part, parts_of
from simulator.traces.load import OfferedLoad, at_load, offered_load
from simulator.traces.trace import Trace
from simulator.training.data_sets import read_any

FEWEST = 20
"""Minimum number of jobs of a trace that fit on the cluster."""


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """The options of a leaderboard. The grid has every combination of traces, clusters, loads and estimates."""

    traces: tuple[str, ...]
    """Each a file, FORMAT:FILE, or one of them with @VC behind it: the jobs of that virtual cluster."""
    clusters: tuple[str, ...]
    """Each NxG, or a TOML file."""
    policies: tuple[str, ...]
    """Each NAME[:key=value,...]; changes are against the first."""
    loads: tuple[float | None, ...] = (None,)
    """Work over capacity; None is the load that the trace has."""
    estimates: tuple[str, ...] = ("true",)
    windows: int = 1
    """Number of parts of each trace; 1 is the whole trace."""
    warm_up: str = RULE
    """Policy that runs the jobs before a part."""
    slowdown: tuple[str, ...] = ("locality",)
    profiles: Path | None = None
    models: str | None = None
    """Mix from which the models of jobs are drawn that name none; None: they have the median of all profiles."""
    preempt_cost_s: float | None = None
    seed: int | None = None
    limit: int | None = None
    """Number of jobs of each trace, the first ones."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Cell:
    """One combination: a trace on a cluster, at a load, with a quality of estimates."""

    trace: str
    """Name of the trace; unlike `Trace.name`, unique."""
    cluster: str
    load: float | None
    """The load that was asked for; None: the trace's own."""
    estimates: str
    scenario: Scenario
    parts: Sequence[Part]
    offered: OfferedLoad
    """The load of the trace as it is run."""
    dropped: int
    """Number of jobs that can never fit on the cluster."""
    left_out: Mapping[str, int]
    """Number of rows of the trace's log that are no jobs, by reason; empty for a file in the common form."""

    @property
    def name(self) -> str:
        """Name of the combination, for messages."""
        load = "its own load" if self.load is None else f"load {self.load:g}"
        return f"{self.trace} on {self.cluster} at {load}, estimates {self.estimates}"


def cells_of(options: GridOptions) -> list[Cell]:
    """Read the traces, and return every combination. Raises SimulatorError, PolicyError."""
    _check(options)
    return list(_cells(options))


def _cells(options: GridOptions) -> Iterator[Cell]:
    for name, text in zip(_names(options.traces), options.traces, strict=True):
        trace, left_out = _read(text, options.limit)
        for cluster_text in options.clusters:
            cluster = parse_cluster(cluster_text)
            fits = JobSizes(trace, cluster).always_possible()
            fitting = trace.take(fits)
            if len(fitting) < FEWEST:
                raise TraceError(
                    f"has {len(fitting)} jobs that fit on {cluster_text}", mend=f"give at least {FEWEST}", path=text
                )
            for load in options.loads:
                scaled = fitting if load is None else at_load(fitting, cluster.num_gpus, load)
                parts = parts_of(scaled, round(len(scaled) * WARM_UP), options.windows)
                for estimates in options.estimates:
                    run = RunOptions(
                        trace=Path(text),
                        cluster=cluster_text,
                        slowdown=options.slowdown,
                        preempt_cost_s=options.preempt_cost_s,
                        seed=options.seed,
                        estimates=estimates,
                        profiles=options.profiles,
                        models=options.models,
                    )
                    yield Cell(
                        trace=name,
                        cluster=cluster_text,
                        load=load,
                        estimates=estimates,
                        scenario=Scenario.on(run, scaled, cluster),
                        parts=parts,
                        offered=offered_load(scaled, cluster.num_gpus),
                        dropped=len(trace) - len(fitting),
                        left_out=left_out,
                    )


def _check(options: GridOptions) -> None:
    """Check what is given before any trace is read. Raises SettingError, PolicyError."""
    given = {
        "--traces": options.traces,
        "--clusters": options.clusters,
        "--policies": options.policies,
        "--loads": options.loads,
        "--estimates": options.estimates,
    }
    for flag, values in given.items():
        if not values:
            raise SettingError(f"{flag}: give a,b,c")
        twice = [value for value, times in Counter(values).items() if times > 1]
        if twice:
            raise SettingError(f"{flag}: {'own' if twice[0] is None else twice[0]} is given twice")
    if options.windows < 1:
        raise SettingError(f"--windows {options.windows}: give 1 or more")
    probe = RunOptions(trace=Path(options.traces[0]), cluster=options.clusters[0], seed=options.seed)
    parse_policy(options.warm_up)
    for text in (*options.policies, options.warm_up):
        make_policy(text, probe, lenient=True)


def _read(text: str, limit: int | None) -> tuple[Trace, Mapping[str, int]]:
    """Read FILE or FORMAT:FILE, with @VC behind it only the jobs of that virtual cluster. Raises TraceError.

    The numbers of rows that were left out are those of the whole file.
    """
    path, at, vc = text.rpartition("@")
    if not at or Path(text).is_file():
        path, vc = text, ""
    trace, left_out = read_any(path)
    if vc:
        there = np.array([each == vc for each in trace.vc], dtype=np.bool_)
        if not there.any():
            raise TraceError(
                f"has no job of virtual cluster {vc!r}", mend="headway-sim trace describe lists them", path=path
            )
        trace = trace.take(there)
    first = np.arange(len(trace)) < (len(trace) if limit is None else limit)
    return trace.take(first).from_zero(), left_out


def _names(texts: Sequence[str]) -> list[str]:
    """Return short names of the traces: the file without folder and ending, or the whole text where these are not unique."""
    short = []
    for text in texts:
        path, at, vc = text.rpartition("@") if "@" in text else (text, "", "")
        short.append(Path(path.rpartition(":")[2]).name.partition(".")[0] + (f"@{vc}" if at else ""))
    return [name if short.count(name) == 1 else text for name, text in zip(short, texts, strict=True)]
