"""RL-TAPS on the paper's cluster of 32 GPUs: CPU time of a decision, of the network, of the policy, and of a step.

The network decides on the images of its environment. The policy decides on the states of its own run of the paper's jobs, all of
which may be resized, with full slots; it also makes the image, and finds placements. As in the policy server, numpy and torch have
one thread. CPU time is compared with the target, since on busy cores time by the clock says nothing of the policy.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from policies.api import load_policy
from policies.learned.rl_taps.cluster import CLUSTER
from policies.serving.runtime.arithmetic import use_one_thread
from simulator.cluster.cluster import cluster_of
from simulator.engine.simulation import Simulation
from simulator.papers.rl_taps.options import FULL
from simulator.papers.rl_taps.reproduction.inference import decisions_s
from simulator.papers.rl_taps_bench import measure
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario
from simulator.traces.generators.rl_taps import RLTaps, generate
from tests.bench.cases.decisions import timed
from tests.bench.measuring.figures import Findings, percentile, spread

NAME = "rl-taps"
TARGET_MS = 5.0
STEP_US = 1e6 / 30_000
"""Time of a step at 30,000 steps a second."""
ENVS, TURNS = 64, 300
JOBS = 400
BEGIN_S = 2_000.0
"""Time from which decisions are counted: the slots are full, and jobs wait."""


def run(*, quick: bool) -> Findings:
    """Measure."""
    use_one_thread()
    findings = Findings(NAME)
    count = 50 if quick else 300
    _add(findings, "network, 32 GPUs", *decisions_s("", count))
    _add(findings, "policy, 8 nodes of 4 GPUs, 10 jobs in slots", *timed(load_policy(NAME), busy(), count))
    _add_steps(findings, rounds=2 if quick else 5)
    return findings


def _add_steps(findings: Findings, rounds: int) -> None:
    """Add the CPU time of a random step of environments that step together in one process."""
    taken_s, cpu_s = measure(ENVS, TURNS, rounds, FULL)
    steps = ENVS * TURNS
    by_cpu, by_clock = steps / cpu_s, steps / taken_s
    note = f"{by_cpu:,.0f} steps a second of CPU, {by_clock:,.0f} by the clock; load {os.getloadavg()[0]:.1f}"
    findings.add(f"CPU time of a step, {ENVS} environments together", 1e6 / by_cpu, "us", STEP_US, note)


def busy() -> Simulation:
    """Return a simulation of the policy, in which there are more jobs than slots."""
    options = RunOptions(Path("rl-taps"), "8x4", ("link-sharing", "scaling"))
    trace = generate(RLTaps(seed=1000, jobs=JOBS, elastic=1.0))
    simulation = Scenario.on(options, trace, cluster_of(CLUSTER)).under_rule(NAME, load_policy(NAME))
    simulation.run(until_s=BEGIN_S)
    return simulation


def _add(findings: Findings, name: str, taken_s: Sequence[float], cpu_s: Sequence[float]) -> None:
    """Add the CPU time of decisions, with their time by the clock as a note."""
    findings.keep(f"{name}, s", taken_s)
    findings.keep(f"{name}, CPU s", cpu_s)
    note = f"CPU p99 {percentile(cpu_s, 99) * 1e3:.2g} ms; by the clock {spread(taken_s, 1e3)} ms; load {os.getloadavg()[0]:.1f}"
    findings.add(f"CPU time of a decision: {name}", median(cpu_s) * 1e3, "ms", TARGET_MS, note)
