"""The kernel without a compiler: the same source, interpreted, gives the same runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulator.kernel import compiled

ROOT = Path(__file__).parents[4]
RUNS = """
import hashlib, json, sys
from policies.api import load_policy
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from simulator.kernel import compiled
from simulator.engine.settings import Estimates, NodeChange, Settings
from simulator.traces.trace import Trace

S = 10**9
count = 60
trace = Trace.of(
    "small",
    [f"j{row}" for row in range(count)],
    [row * row * 7 % 90 * S // (1 + row % 3) for row in range(count)],
    [1 + row * 5 % 9 for row in range(count)],
    [(3 + row * 37 % 200) * S + row for row in range(count)],
    preemptible=[row % 7 != 0 for row in range(count)],
    user=[f"u{row % 4}" for row in range(count)],
)
changes = (NodeChange(20.0, 1, "down"), NodeChange(30.5, 2, "drain"), NodeChange(200.0, 1, "up"), NodeChange(300.0, 2, "up"))
digests = {}
for policy in ("fifo", "sjf", "backfill", "srtf", "las", "tiresias", "srtf-count"):
    for estimates in (Estimates(), Estimates("history")):
        settings = Settings(preempt_cost_s=1.5, changes=changes, checkpoint_interval_s=10.0, estimates=estimates, record=True)
        simulation = Simulation(trace, parse_cluster("3x4"), load_policy(policy), settings)
        simulation.run(until_s=100.0)
        simulation = simulation.fork()
        simulation.run()
        logs = (simulation.finished.prefix, simulation.finished)
        names = sorted(set(vars(simulation.finished)) - {"prefix", "prefix_length"})
        columns = [list(getattr(log, name)) for log in logs for name in names]
        digests[f"{policy} {estimates.kind}"] = hashlib.sha256(repr(columns).encode()).hexdigest()
import numpy as np
from policies.learned.sched2.state import features
from policies.learned.sched2.state.feature_columns import OF_JOB
from simulator.papers.sched2.env import Sched2Env
from simulator.traces.generators.sched2 import Sched2

env = Sched2Env(traces=Sched2(jobs=60, mean_gap_s=400.0, cluster_gpus=32), cluster="4x8")
rng = np.random.default_rng(1)
rules = rng.standard_normal((3, OF_JOB))
digests["played"] = hashlib.sha256(repr(env.play(rules, [7])).encode()).hexdigest()
states = rng.random((50, env.columns.size), dtype=np.float32) * (rng.random((50, env.columns.size)) < 0.7)
rows = features.Features(env.columns).rows(states.astype(np.float32))
digests["features"] = hashlib.sha256(rows.tobytes()).hexdigest()
assert features.__file__.endswith(".py") != compiled()
print(json.dumps({"compiled": compiled(), "digests": digests}))
"""


def run(path: Path) -> dict[str, object]:
    """Return the results of those runs with the packages of that folder."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUNS],
        capture_output=True,
        text=True,
        timeout=100,
        env=environment,
        cwd=path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_the_same_digests_without_compiled_modules(tmp_path: Path) -> None:
    for package in ("simulator", "policies", "protos"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    plain = run(tmp_path)
    assert plain["compiled"] is False
    here = run(ROOT)
    assert here["compiled"] is compiled()
    assert here["digests"] == plain["digests"]
    if not compiled():
        pytest.skip("there is no compiled kernel here to compare with: both runs were interpreted")
