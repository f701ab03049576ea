"""contention-greedy and headway-rl against all controls on clusters with contention, and the time of their decisions.

`python -m tests.bench.contention [--setting one-normal] [--seeds 5] [--jobs 256] [--policy headway-rl] [--json FILE]`

Settings: 4 nodes of 8 GPUs in one rack (`one`), or two such racks whose uplinks carry half of what their NICs do (`two`); demands
1 to 32, Poisson arrivals at load 0.9, contention_rl's normal and heavy mix; slowdown by link sharing. JCT counts queueing.
Not among the defaults: `small-at-once`, one rack, demands 2, 4 and 8, all jobs at once; `powers`, one rack, demands that
are powers of two up to 32; `four-normal`, four racks.
Test seeds begin at 1000; the defaults of contention-greedy were chosen on seeds 200 to 205, headway-rl is validated on 200 and 201.

Differences are trace by trace, with their 95 % interval over seeds: against the best of the controls (by its mean), and against
contention-greedy.

`--latency` times single decisions instead: of one trace on 4 nodes, and at 500 nodes of 8 GPUs with 1,000 waiting jobs.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from policies.api import Decision, Policy, load_policy, parse_policy
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.learned.evaluation.statistics import Mean, change
from policies.model import ClusterState
from simulator.cluster.cluster import cluster_of
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.papers.contention_rl.contenders import CONTROLS, GREEDY, HEADWAY
from simulator.papers.contention_rl.experiment import NIC_GBS, cluster
from simulator.reproducing.registry import FIRST_TEST_SEED
from simulator.results.result import Result
from simulator.runs.process_pool import in_parallel
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.traces.trace import NS_PER_S, Trace

SETTINGS = ("one-normal", "one-heavy", "two-normal", "two-heavy")
OTHERS: dict[str, dict[str, Any]] = {
    "small-at-once": {"racks": 1, "mix": "normal", "demands": (2, 4, 8), "arrivals": "batch", "load": None},
    "powers": {"racks": 1, "mix": "normal", "demands": (1, 2, 4, 8, 16, 32)},
    "four-normal": {"racks": 4, "mix": "normal"},
}
"""Settings that no policy was trained for."""
OURS = (GREEDY, HEADWAY)


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one setting: means over seeds, and the mean JCT of each trace, in seconds."""

    policy: str
    avg_jct_s: float
    ci95_s: float | None
    """Half of the 95 % interval of the mean."""
    p90_jct_s: float
    by_seed_s: tuple[float, ...]
    """Mean JCT of each trace."""
    p90_by_seed_s: tuple[float, ...]


def parts(setting: str) -> dict[str, Any]:
    """Return the racks, and the parameters of the workload except seed and jobs."""
    if setting in OTHERS:
        return OTHERS[setting]
    size, _, mix = setting.partition("-")
    return {"racks": 1 if size == "one" else 2, "mix": mix}


def trace(setting: str, seed: int, jobs: int) -> Trace:
    """Return the trace of that seed."""
    reported: dict[str, Any] = {"arrivals": "poisson", "load": 0.9, "demands": tuple(range(1, 33))} | parts(setting)
    racks = reported.pop("racks")
    return generate(ContentionRL(jobs=jobs, seed=seed, cluster_gpus=32 * racks, **reported))


def jcts_s(setting: str, policy: str, seed: int, jobs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the JCT of every job, in seconds, queueing included."""
    where, profiles = cluster(parts(setting)["racks"]), paper_profiles()
    models = build(["link-sharing"], topology=where.topology, profiles=profiles)
    made = load_policy(*parse_policy(policy))
    simulation = Simulation(trace(setting, seed, jobs), where, made, Settings(), models, profiles)
    simulation.run()
    if simulation.unfinished:
        raise RuntimeError(f"{policy} left {len(simulation.unfinished)} jobs unfinished in {setting}, seed {seed}")
    return np.asarray(Result.of(simulation, policy, 0.0).jct_ns) / NS_PER_S


def compared(setting: str, policies: Sequence[str], seeds: Sequence[int], jobs: int) -> list[Row]:
    """A row for each policy, best first."""
    found = in_parallel(
        policies, lambda policy, _: [jcts_s(setting, policy, seed, jobs) for seed in seeds], lambda *_: None
    )
    rows = []
    for policy, runs in zip(policies, found, strict=True):
        means = tuple(float(run.mean()) for run in runs)
        tails = tuple(float(np.quantile(run, 0.9)) for run in runs)
        mean = Mean.of(means)
        rows.append(Row(policy, mean.mean, mean.ci95, float(np.mean(tails)), means, tails))
    return sorted(rows, key=lambda row: row.avg_jct_s)


def reported(row: Row, control: Row, greedy: Row | None) -> str:
    """One line of the table."""
    against = [_percent(change(row.by_seed_s, other.by_seed_s)) for other in (control, greedy) if other is not None]
    tail = _percent(change(row.p90_by_seed_s, control.p90_by_seed_s))
    ci95 = "" if row.ci95_s is None else f"±{row.ci95_s:6.0f}"
    return (
        f"  {row.policy:30s} {row.avg_jct_s:8.0f} s {ci95}  {'  '.join(against)}   p90 {row.p90_jct_s:8.0f} s  {tail}"
    )


def _percent(mean: Mean) -> str:
    ci95 = "" if mean.ci95 is None else f" ±{100 * mean.ci95:4.1f}"
    return f"{100 * mean.mean:+6.1f}{ci95} %"


# --- latency


def busy_state(nodes: int, waiting: int, seed: int) -> ClusterState:
    """Return a cluster with three quarters of the GPUs busy and so many waiting jobs, on which no policy has decided before."""
    racks = nodes // 20
    blocks = [{"count": 20, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]
    where = cluster_of({"nodes": blocks, "network": {"kind": "racks", "nic_gbs": NIC_GBS, "uplink_gbs": 125.0}})
    profiles = paper_profiles()
    models = build(["link-sharing"], topology=where.topology, profiles=profiles)
    workload = ContentionRL(jobs=nodes + waiting, seed=seed, demands=tuple(range(1, 33)), cluster_gpus=8 * nodes)
    simulation = Simulation(generate(workload), where, ContentionGreedy(), Settings(), models, profiles)
    simulation.advance()
    simulation.decide()
    state = simulation.state()
    ends = np.random.default_rng(seed).random(len(state.jobs)) < 0.1
    return _without(state, np.flatnonzero(ends & (state.jobs.state == 2)))


def _without(state: ClusterState, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ClusterState:
    """Return the state in which these running jobs wait again."""
    jobs = state.jobs
    held = np.diff(jobs.placement_offset)
    keep = np.repeat(~np.isin(np.arange(len(jobs)), rows), held)
    held[rows] = 0
    pending = jobs.state.copy()
    pending[rows] = 1
    return replace(
        state,
        jobs=replace(
            jobs,
            state=pending,
            placement_offset=np.append(0, np.cumsum(held)),
            placement_node=jobs.placement_node[keep],
            placement_gpus=jobs.placement_gpus[keep],
            placement_gpu_mask=jobs.placement_gpu_mask[keep],
        ),
    )


class Timed:
    """A policy that records the time of each decision: wall and CPU, ms. On a busy machine only CPU time is meaningful."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spec = policy.spec
        self.taken_ms: list[tuple[float, float]] = []

    def decide(self, state: ClusterState) -> Decision:
        """Return the policy's decision, and measure its time."""
        begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
        decision = self._policy.decide(state)
        self.taken_ms.append((1e3 * (time.perf_counter() - begun_s), 1e3 * (time.thread_time() - begun_cpu_s)))
        return decision


def latencies(policy: str, decisions: int = 200) -> None:
    """Print the times of that policy's decisions."""
    gc.freeze()
    small = Timed(load_policy(*parse_policy(policy)))
    where, profiles = cluster(1), paper_profiles()
    models = build(["link-sharing"], topology=where.topology, profiles=profiles)
    Simulation(trace("one-heavy", FIRST_TEST_SEED, 256), where, small, Settings(), models, profiles).run()
    _tell(f"{policy}: 4 nodes x 8 GPUs, one-heavy", small)
    large = Timed(load_policy(*parse_policy(policy)))
    states = [busy_state(500, 1000, seed) for seed in range(5)]
    for turn in range(decisions):
        large.decide(states[turn % len(states)])
    _tell(f"{policy}: 500 nodes x 8 GPUs, 1,000 or more waiting jobs", large)


def _tell(what: str, timed: Timed) -> None:
    print(f"{what}, {len(timed.taken_ms)} decisions:")
    for name, column in zip(("wall", "CPU"), np.array(timed.taken_ms).T, strict=True):
        median, p99 = np.quantile(column, [0.5, 0.99])
        print(f"  {name} time: median {median:.1f} ms, p99 {p99:.1f} ms")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.contention", description=__doc__)
    parser.add_argument("--setting", action="append", choices=(*SETTINGS, *OTHERS))
    parser.add_argument("--policy", action="append", help=f"beside all controls; default {' and '.join(OURS)}")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_TEST_SEED)
    parser.add_argument("--jobs", type=int, default=256)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    ours = given.policy or OURS
    if given.latency:
        for policy in ours:
            latencies(policy)
        return
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    table = {}
    for setting in given.setting or SETTINGS:
        rows = compared(setting, [*ours, *CONTROLS], seeds, given.jobs)
        control = next(row for row in rows if row.policy in CONTROLS)
        greedy = next((row for row in rows if row.policy == GREEDY), None)
        others = control.policy + (f", then against {GREEDY}" if greedy else "")
        print(
            f"{setting}: {given.seeds} seeds x {given.jobs} jobs; against {others}; p90 against the former", flush=True
        )
        for row in rows:
            print(reported(row, control, greedy), flush=True)
        table[setting] = [asdict(row) for row in rows]
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
