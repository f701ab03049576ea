"""The time of one decision: 10,000 jobs waiting on 500 nodes of 8 GPUs, in process and over gRPC; 100,000 on 10,000 nodes.

Each policy decides on the states of its own run, while jobs come and finish, after it has filled the cluster. In process, a
decision is one call of `decide`. Over gRPC it is one call of the client that the controller uses, to a server in a process of its
own: choosing the jobs that the policy considers, writing the state, both ways, reading it, deciding, and checking the answer.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from policies.api import Policy, load_policy, parse_policy
from policies.errors import PolicyServerError
from policies.model import ClusterState
from policies.serving.remote import RemotePolicy
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from simulator.runs.options import RunOptions
from simulator.runs.scenario import Scenario
from simulator.traces.trace import NS_PER_S, Trace
from tests.bench.measuring.figures import Findings, percentile, spread

HEURISTICS = (
    "fifo-skip", "backfill", "srtf", "srsf", "las", "tiresias", "pal", "dally", "ada-srsf", "contention-greedy",
)  # fmt: skip
LEARNED = ("headway-rl",)
LARGE = ("fifo", "fifo-skip", "srtf", *LEARNED)
"""Policies with 100,000 waiting jobs. `fifo` says how many jobs it considers, so over gRPC it gets only these."""
HEURISTIC_MS, LEARNED_MS, LARGE_MS = 60.0, 200.0, 1000.0
WARM_UP = 3
"""Decisions before the counted ones: the first ones import modules and fill caches."""
_SERVER = "from policies.serving.cli.app import main; main()"
_SIZES = ([1, 2, 4, 8, 16, 32], [0.55, 0.15, 0.12, 0.13, 0.04, 0.01])
_MODELS = ("resnet50", "vgg16", "bert-base", "gpt2", "")


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("decisions")
    waiting, nodes = (2_000, 100) if quick else (10_000, 500)
    for name in (*HEURISTICS, *LEARNED):
        target = LEARNED_MS if name in LEARNED else HEURISTIC_MS
        _measure(findings, crowded(name, waiting, nodes), name, 10 if quick else 100, target)
    for name in () if quick else LARGE:
        _measure(findings, crowded(name, 100_000, 10_000), name, 5, LARGE_MS)
    return findings


def _measure(findings: Findings, simulation: Simulation, name: str, count: int, target_ms: float) -> None:
    """Time the policy's decisions in process, then over gRPC."""
    policy = load_policy(*parse_policy(name))
    size = f"{len(simulation.state().pending):,} waiting, {simulation.cluster.num_nodes:,} nodes"
    with served(name) as remote:
        for how, decides in (("in process", policy), ("over gRPC", remote)):
            taken_s, cpu_s = timed(decides, simulation, count)
            findings.keep(f"{name} {how}, {size}, s", taken_s)
            note = f"{spread(taken_s, 1e3)} ms; load {os.getloadavg()[0]:.1f}"
            if decides is policy:
                note += f"; CPU p99 {percentile(cpu_s, 99) * 1e3:.4g} ms"
            findings.add(f"{name} {how}, p99, {size}", percentile(taken_s, 99) * 1e3, "ms", target_ms, note)


def timed(policy: Policy, simulation: Simulation, count: int) -> tuple[list[float], list[float]]:
    """Return the wall and CPU seconds (of this thread) of so many decisions, on the states of a copy of the simulation.

    The garbage collector runs only between decisions, as in the policy server.
    """
    taken_s: list[float] = []
    cpu_s: list[float] = []
    for number, state in enumerate(states(simulation, count + WARM_UP)):
        gc.collect(0)
        gc.disable()
        begun_s, begun_cpu_s = time.perf_counter(), time.thread_time()
        policy.decide(state)
        if number >= WARM_UP:
            cpu_s.append(time.thread_time() - begun_cpu_s)
            taken_s.append(time.perf_counter() - begun_s)
        gc.enable()
    return taken_s, cpu_s


def states(simulation: Simulation, count: int) -> Iterator[ClusterState]:
    """Yield the states of a copy of the simulation at its next instants."""
    copied = simulation.fork()
    for _ in range(count):
        if not copied.advance():
            raise RuntimeError("the simulation has ended")
        yield copied.state()
        copied.decide()


def crowded(name: str, waiting: int, nodes: int) -> Simulation:
    """Return a simulation under that policy on so many busy nodes of 8 GPUs, in which about so many jobs wait and more come."""
    rng = np.random.default_rng(3)
    at_once = waiting + 4 * nodes
    count = at_once + 1_000
    gap_s = 3_000.0 / nodes
    submit_s = np.concatenate((np.zeros(at_once), 1.0 + gap_s * np.arange(count - at_once)))
    trace = Trace.of(
        "crowded",
        [f"j{row}" for row in range(count)],
        [round(at_s * NS_PER_S) for at_s in submit_s.tolist()],
        rng.choice(_SIZES[0], count, p=_SIZES[1]).tolist(),
        [round(long_s * NS_PER_S) for long_s in np.clip(rng.lognormal(8.0, 1.5, count), 60.0, 1e6).tolist()],
        model=[_MODELS[kind] for kind in rng.integers(0, len(_MODELS), count).tolist()],
        user=[f"u{user}" for user in rng.integers(0, 100, count).tolist()],
    )
    options = RunOptions(Path("crowded"), f"{nodes}x8", ("link-sharing",))
    scenario = Scenario.on(options, trace, parse_cluster(options.cluster))
    simulation = scenario.under_rule(name, load_policy(name))
    simulation.run(until_s=1.0)
    return simulation


@contextmanager
def served(name: str) -> Iterator[RemotePolicy]:
    """Serve that policy by `headway-policy serve` in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        address = f"unix://{folder}/policy.sock"
        words = (sys.executable, "-c", _SERVER, "serve", "--policy", name, "--listen", address)
        server = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        remote = RemotePolicy(address)
        try:
            _wait_for(remote, server)
            yield remote
        finally:
            remote.close()
            server.terminate()
            server.wait()


def _wait_for(remote: RemotePolicy, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            _ = remote.spec
        except PolicyServerError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the policy server did not start within a minute")
