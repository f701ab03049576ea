"""SCHED2 against its baselines and controls: `python -m tests.bench.sched2 [--gap 129] [--seeds 10] [--json FILE]`.

Traces of 1,000 jobs of the generator `sched2`, test seeds from 1000 on; 15 nodes of 8 GPUs, slowdown by locality. Two tables for
each gap: policies that choose from the first ten waiting jobs, as the paper's agent does, and policies that see the whole queue. At
a gap of 129 s the first six wait as long as the paper states (`tests.bench.sched2_load`). Ratios are those of means, to
the best of the six baselines in that figure; the change of JCT is to the better control, trace by trace; 95 % intervals are over
traces. `--json` has besides: fragmentation (equation 1), relaxed locality and waits of sensitive and insensitive jobs (table III),
and with `--timeline` both curves of figure 9.

`--tune` looks for the patience of `sched2-delay` on training traces. `--latency` times single decisions of the learned policy.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from policies.api import Policy
from policies.learned.evaluation.statistics import Mean, change
from policies.learned.sched2.rule import Sched2Rule
from policies.learned.sched2.state.window import FIRST, WIDEST
from simulator.cluster.cluster import Cluster, parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.sched2.baselines import BASELINES, CONTROLS, Baseline
from simulator.papers.sched2.experiment import CALIBRATED_GAP_S, OURS, READINGS, measures
from simulator.reproducing.experiment import Metric
from simulator.results.result import Result
from simulator.results.timeline import Timeline
from simulator.runs.process_pool import in_parallel
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.sched2 import TEST_SEEDS, TRAINING_SEEDS, generate
from simulator.traces.generators.sched2 import Sched2 as Workload
from simulator.traces.trace import NS_PER_S, Trace

GAP_S = CALIBRATED_GAP_S
SHOWN = dict(zip(READINGS, (FIRST, WIDEST), strict=True))
PATIENCES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FIGURES_OF = {
    **{name: name for name in ("avg_jct_s", "effectiveness", "makespan_s", "avg_wait_s")},
    "avg_run_s": "avg_service_s",
    **{name: name for name in ("fragmentation", "relaxed_sensitive", "wait_sensitive_s")},
    **{name: name for name in ("relaxed_insensitive", "wait_insensitive_s")},
}
"""The figures of a run, and the measure of the experiment that each is."""
FIGURES = {"avg_jct_s": "lower", "effectiveness": "higher", "makespan_s": "lower"}
_BINS = 60


def figures(result: Result, measured: Mapping[str, Metric], timeline: bool) -> dict[str, Any]:
    """Return the figures of one run, as `headway-sim reproduce sched2` defines them."""
    found: dict[str, Any] = {}
    for name, metric in FIGURES_OF.items():
        value = measured[metric].of(result)
        found[name] = float("nan") if value is None else float(value)
    if timeline:
        line = Timeline.of(result, int(result.finish_ns.max()), _BINS)
        found["timeline"] = {
            name: getattr(line, name).tolist() for name in ("begin_s", "fragmentation", "required_gpus")
        }
    return found


class Ground:
    """The simulated cluster and its models, the same for every policy."""

    def __init__(self, timeline: bool = False) -> None:
        self.cluster = parse_cluster("15x8")
        self.profiles = paper_profiles("sched2")
        self._measures = measures(self.profiles)
        self._timeline = timeline

    def baseline(self, name: str, trace: Trace, window: int, **options: float) -> dict[str, Any]:
        """Return a baseline or control."""
        models = build(["locality"], topology=self.cluster.topology, profiles=self.profiles)
        run = Baseline(name, trace, self.cluster, models, window, record=True, **options).run()
        return self._figures(run, name)

    def served(self, policy: Policy, trace: Trace) -> dict[str, Any]:
        """Return a policy as it is served."""
        models = build(["locality"], topology=self.cluster.topology, profiles=self.profiles)
        run = Simulation(trace, self.cluster, policy, Settings(record=True), models, self.profiles)
        run.run()
        return self._figures(run, policy.spec.name)

    def _figures(self, run: Simulation, name: str) -> dict[str, Any]:
        result = Result.of(run, name, 0.0)
        if not result.done.all():
            raise RuntimeError(f"{name} left {len(run.unfinished)} jobs unfinished")
        return figures(result, self._measures, self._timeline)


def table(gap_s: float, seeds: Sequence[int], weights: str, timeline: bool) -> dict[str, list[dict[str, Any]]]:
    """Return a row for every policy, for each reading."""
    ground = Ground(timeline)
    runs: dict[tuple[str, str], Callable[[Trace], dict[str, Any]]] = {}
    for reading, window in READINGS.items():
        runs[reading, OURS] = partial(ground.served, Sched2Rule(weights, window=SHOWN[reading]))
        for name in (*BASELINES, *CONTROLS):
            runs[reading, name] = partial(_baseline, ground, name, window)
    traces = [generate(Workload(seed=seed, mean_gap_s=gap_s)) for seed in seeds]
    keys = list(runs)
    found = in_parallel(
        [str(place) for place in range(len(keys))],
        lambda place, _: [runs[keys[int(place)]](trace) for trace in traces],
        lambda *_: None,
    )
    tables: dict[str, list[dict[str, Any]]] = {reading: [] for reading in READINGS}
    for (reading, name), each in zip(keys, found, strict=True):
        tables[reading].append(_row(name, each))
    for rows in tables.values():
        _compare(rows, bounds(traces, ground.cluster))
    return tables


def bounds(traces: Sequence[Trace], cluster: Cluster) -> dict[str, float]:
    """Return lower bounds for every schedule, as means over traces: a job cannot end before its submit plus its ideal time, and
    the work of all jobs submitted after any instant must be done after it, on the existing GPUs."""
    jct, makespan = [], []
    for trace in traces:
        submit, ideal = trace.submit_ns / NS_PER_S, trace.duration_ns / NS_PER_S
        work = (ideal * trace.num_gpus)[::-1].cumsum()[::-1] / cluster.num_gpus
        jct.append(ideal.mean())
        makespan.append(max((submit + ideal).max(), (submit + work).max()) - submit[0])
    return {"avg_jct_s": float(np.mean(jct)), "effectiveness": 1.0, "makespan_s": float(np.mean(makespan))}


def _baseline(ground: Ground, name: str, window: int, trace: Trace) -> dict[str, Any]:
    return ground.baseline(name, trace, window)


def _row(name: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"policy": name, "traces": len(runs), "jct_of_traces_s": [run["avg_jct_s"] for run in runs]}
    for figure in runs[0]:
        if figure == "timeline":
            row[figure] = runs[0][figure]
            continue
        found = Mean.of([run[figure] for run in runs])
        row[figure], row[f"{figure}_ci95"] = found.mean, found.ci95
    return row


def _compare(rows: list[dict[str, Any]], bound: dict[str, float]) -> None:
    """Add to every row, for each figure, its ratio to the best baseline, and the ratio that no schedule can exceed."""
    for figure, better in FIGURES.items():
        of_baselines = [row[figure] for row in rows if row["policy"] in BASELINES]
        best = min(of_baselines) if better == "lower" else max(of_baselines)
        for row in rows:
            row[f"{figure}_times"] = best / row[figure] if better == "lower" else row[figure] / best
            row[f"{figure}_most_times"] = best / bound[figure] if better == "lower" else bound[figure] / best
    rows.sort(key=lambda row: float(row["avg_jct_s"]))
    control = next(row for row in rows if row["policy"] in CONTROLS)
    for row in rows:
        by = change(row["jct_of_traces_s"], control["jct_of_traces_s"])
        spread = float("nan") if by.ci95 is None else by.ci95
        row["change"], row["change_ci95"], row["control"] = by.mean, spread, control["policy"]


def shown(gap_s: float, tables: dict[str, list[dict[str, Any]]]) -> None:
    """Print the tables."""
    for reading, rows in tables.items():
        traces, control = rows[0]["traces"], rows[0]["control"]
        most = ", ".join(f"{figure} {rows[0][f'{figure}_most_times']:.2f}" for figure in FIGURES)
        print(f"gap {gap_s:g} s, {reading}, {traces} traces; (times the best baseline), change to {control}")
        print(f"  no schedule has more than so many times the best baseline's: {most}")
        for row in rows:
            print(
                f"  {row['policy']:18s} JCT {row['avg_jct_s']:7.0f} ±{row['avg_jct_s_ci95'] or 0:5.0f} s"
                f" ({row['avg_jct_s_times']:.2f}), {row['change']:+6.1%} ±{row['change_ci95']:.1%}"
                f"  effectiveness {row['effectiveness']:.3f} ({row['effectiveness_times']:.2f})"
                f"  makespan {row['makespan_s']:7.0f} s ({row['makespan_s_times']:.2f})"
                f"  wait {row['avg_wait_s']:6.0f} s  run {row['avg_run_s']:5.0f} s  frag {row['fragmentation']:.3f}"
                f"  relaxed {row['relaxed_sensitive']:.1%} / {row['relaxed_insensitive']:.1%}"
            )


def tuned(seeds: int) -> list[dict[str, Any]]:
    """Return rows of delay scheduling by its patience, on training traces."""
    ground = Ground()
    traces = [generate(Workload(seed=seed, mean_gap_s=GAP_S)) for seed in TRAINING_SEEDS[:seeds]]
    rows = []
    for reading, window in READINGS.items():
        for patience in PATIENCES:
            runs = [ground.baseline("delay", trace, window, patience=patience) for trace in traces]
            rows.append({"reading": reading, "patience": patience, **_row("delay", runs)})
            print(
                f"{reading}, patience {patience:g}: JCT {rows[-1]['avg_jct_s']:.0f} s ±{rows[-1]['avg_jct_s_ci95']:.0f}"
            )
    return rows


def latency(policy: Policy) -> dict[str, float]:
    """Return the times of all decisions on one test trace, wall and CPU, in ms."""
    ground = Ground()
    models = build(["locality"], topology=ground.cluster.topology, profiles=ground.profiles)
    trace = generate(Workload(seed=TEST_SEEDS[0], mean_gap_s=GAP_S))
    run = Simulation(trace, ground.cluster, None, Settings(), models, ground.profiles)
    wall, cpu, queues = [], [], []
    while run.advance():
        state = run.state()
        begun, begun_cpu = time.perf_counter(), time.thread_time()
        decision = policy.decide(state)
        wall.append(1e3 * (time.perf_counter() - begun))
        cpu.append(1e3 * (time.thread_time() - begun_cpu))
        queues.append(len(state.pending))
        run.apply(decision)
    table = {"decisions": float(len(wall)), "longest_queue": float(max(queues))}
    for name, taken in (("wall", wall), ("cpu", cpu)):
        table |= {
            f"{name}_{name_of}": float(np.quantile(taken, of)) for name_of, of in (("p50_ms", 0.5), ("p99_ms", 0.99))
        }
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sched2", description=__doc__)
    parser.add_argument("--gap", type=float, action="append", help=f"seconds, several times; {GAP_S:g} by default")
    parser.add_argument("--seeds", type=int, default=10, help="test traces (training traces with --tune), at most 30")
    parser.add_argument(
        "--first-seed", type=int, default=TEST_SEEDS[0], help="500 for the traces that trainings validate with"
    )
    parser.add_argument("--weights", default="", help="folder of a training, instead of those that come with Headway")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--timeline", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    out: Any
    if given.tune:
        out = tuned(given.seeds)
    elif given.latency:
        out = latency(Sched2Rule(given.weights))
        print(", ".join(f"{name} {value:.4g}" for name, value in out.items()))
    else:
        out, seeds = {}, range(given.first_seed, given.first_seed + given.seeds)
        for gap_s in given.gap or [GAP_S]:
            out[f"{gap_s:g}"] = tables = table(gap_s, seeds, given.weights, given.timeline)
            shown(gap_s, tables)
    if given.json:
        given.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
