"""contention-greedy against all controls where contention can be gained from; and how long it takes to decide.

`python -m tests.bench.contention [--setting one-normal] [--seeds 5] [--jobs 256] [--json FILE]`

Settings: 4 nodes of 8 GPUs in one rack (`one`), or two such racks whose uplinks carry half of what their NICs do (`two`); demands
1 to 32, Poisson arrivals at load 0.9, contention_rl's normal and heavy mix; slowdown by link sharing. JCT counts queueing.
Test seeds begin at 1000; the defaults of contention-greedy were chosen on seeds 200 to 205.

`--latency` times single decisions at 500 nodes of 8 GPUs with 1,000 waiting jobs instead.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from policies.api import load_policy, parse_policy
from policies.heuristics.contention_greedy import ContentionGreedy
from policies.model import ClusterState
from simulator.cluster import Cluster, cluster_of
from simulator.engine import Simulation
from simulator.parallel import in_parallel
from simulator.results import Result
from simulator.settings import Settings
from simulator.slowdown.papers import paper_profiles
from simulator.slowdown.registry import build
from simulator.traces.generators.contention_rl import ContentionRL, generate
from simulator.traces.trace import NS_PER_S, Trace

FIRST_TEST_SEED = 1000
NIC_GBS = 12.5
SETTINGS = ("one-normal", "one-heavy", "two-normal", "two-heavy")
RULED = ("fifo", "fewest-gpus", "srtf", "las", "fifo-skip", "sjf", "srsf")
CONTROLS = (*RULED, *(f"{name}:layout=anywhere" for name in RULED))
OURS = "contention-greedy"
_CONFIDENT = 1.96


@dataclass(frozen=True, slots=True)
class Row:
    """One policy in one setting: means over seeds, and half of the 95 % interval of the first."""

    policy: str
    avg_jct_s: float
    ci95_s: float
    p90_jct_s: float


def cluster(racks: int) -> Cluster:
    """4x8 for each rack; uplinks are oversubscribed 2:1."""
    nodes = [{"count": 4, "gpus": 8, "rack": f"r{rack}"} for rack in range(racks)]
    network = {"kind": "racks", "nic_gbs": NIC_GBS, "uplink_gbs": 4 * NIC_GBS / 2}
    return cluster_of({"nodes": nodes, "network": network})


def trace(racks: int, mix: str, seed: int, jobs: int) -> Trace:
    """The jobs of that seed."""
    return generate(
        ContentionRL(
            jobs=jobs,
            seed=seed,
            arrivals="poisson",
            load=0.9,
            cluster_gpus=32 * racks,
            mix=mix,
            demands=tuple(range(1, 33)),
        )
    )


def jcts_s(setting: str, policy: str, seed: int, jobs: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Of every job, queueing included."""
    size, _, mix = setting.partition("-")
    racks = 1 if size == "one" else 2
    where, profiles = cluster(racks), paper_profiles()
    models = build(["link-sharing"], topology=where.topology, profiles=profiles)
    made = load_policy(*parse_policy(policy))
    simulation = Simulation(trace(racks, mix, seed, jobs), where, made, Settings(), models, profiles)
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
        means = [float(run.mean()) for run in runs]
        spread = _CONFIDENT * float(np.std(means, ddof=1)) / len(means) ** 0.5 if len(means) > 1 else float("nan")
        p90 = float(np.mean([np.quantile(run, 0.9) for run in runs]))
        rows.append(Row(policy, float(np.mean(means)), spread, p90))
    return sorted(rows, key=lambda row: row.avg_jct_s)


# --- latency


def busy_state(nodes: int, waiting: int, seed: int) -> ClusterState:
    """A cluster on which three quarters of the GPUs work, and so many jobs wait: each decision is a first one."""
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
    """That state, those of its running jobs waiting once more."""
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


def latencies_ms(nodes: int, waiting: int, decisions: int) -> list[tuple[float, float]]:
    """Wall and CPU time of single decisions, on five states in turn. On a machine with other work only the latter tells much."""
    states = [busy_state(nodes, waiting, seed) for seed in range(5)]
    policy = ContentionGreedy()
    taken = []
    gc.freeze()
    for turn in range(decisions):
        begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
        policy.decide(states[turn % len(states)])
        taken.append((1e3 * (time.perf_counter() - begun_s), 1e3 * (time.thread_time() - begun_cpu_s)))
    return taken


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.contention", description=__doc__)
    parser.add_argument("--setting", action="append", choices=SETTINGS)
    parser.add_argument("--policy", action="append", help="beside all controls; default contention-greedy")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_TEST_SEED)
    parser.add_argument("--jobs", type=int, default=256)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--latency", action="store_true")
    given = parser.parse_args()
    if given.latency:
        taken = latencies_ms(500, 1000, 200)
        print(f"500 nodes x 8 GPUs, 1,000 or more waiting jobs, {len(taken)} decisions:")
        for name, column in zip(("wall", "CPU"), np.array(taken).T, strict=True):
            median, p99 = np.quantile(column, [0.5, 0.99])
            print(f"  {name} time: median {median:.1f} ms, p99 {p99:.1f} ms")
        return
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    table = {}
    for setting in given.setting or SETTINGS:
        ours = given.policy or [OURS]
        rows = compared(setting, [*ours, *CONTROLS], seeds, given.jobs)
        control = next(row for row in rows if row.policy in CONTROLS)
        print(f"{setting}: {given.seeds} seeds x {given.jobs} jobs; best control {control.policy}")
        for row in rows:
            gain = 100 * (row.avg_jct_s / control.avg_jct_s - 1)
            print(
                f"  {row.policy:36s} {row.avg_jct_s:9.0f} s ±{row.ci95_s:6.0f}  {gain:+6.1f} %  p90 {row.p90_jct_s:9.0f} s"
            )
        table[setting] = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
