"""CPU time of one forecast of starts, with 10,000 jobs waiting on 2,000 busy nodes and 10,000 ended jobs in the journal.

Each policy with a rule is measured. The rules that stop jobs meet their worst case here: a cluster full of jobs that must yield.

The process is the real one, from its start to its end: Python's start and imports, reading the journal, samples and answer. What
the controller itself does for a forecast is measured apart.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from statistics import median

import numpy as np

from controller.forecast.process import MODULE
from controller.forecast.request import Request, decode_answer
from controller.forecast.service import CPU_S
from controller.slurm.model.job import JobKey
from controller.state.journal import Journal, RunRecord
from policies.api import ENTRY_POINT_GROUP
from simulator.forecast.stand_in import DecidingRule
from tests.bench.measuring.figures import Findings, spread
from tests.unit.policies.states.cluster import Job, Node, cluster

JOBS, NODES, RUNS = 10_000, 2_000, 10_000
_NOW_S = 1_700_000_000.0
_LIMIT_S = 86_400.0
_MOST_CPU_S = 1.0


def run(*, quick: bool) -> Findings:
    """Measure."""
    jobs, nodes, samples = (1000, 200, 2) if quick else (JOBS, NODES, 5)
    return measure(ruled(), jobs=jobs, nodes=nodes, runs=RUNS, samples=samples)


def ruled() -> list[str]:
    """Return the names of the policies with a rule."""
    names = sorted(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))
    return [name for name in names if not DecidingRule.named(name).stand_in]


def measure(policies: Sequence[str], *, jobs: int, nodes: int, runs: int, samples: int) -> Findings:
    """Measure forecasts with so many waiting jobs, busy nodes, and ended jobs in the journal; so many of each policy."""
    findings = Findings("estimates")
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        _fill_journal(Path(folder) / "journal.sqlite", runs)
        for policy in policies:
            _measure(findings, _request(Path(folder), policy, jobs, nodes), policy, samples, jobs)
    return findings


def _measure(findings: Findings, request: Request, policy: str, samples: int, jobs: int) -> None:
    forecast_s, own_s, ranges, rule = [], [], 0, ""
    for _ in range(samples):
        begun_s = time.process_time()
        data = request.encode()
        own_s.append(time.process_time() - begun_s)
        before = _children_s()
        done = subprocess.run(
            (sys.executable, "-P", "-m", MODULE), input=data, stdout=subprocess.PIPE, check=True, timeout=300
        )
        forecast_s.append(_children_s() - before)
        begun_s = time.process_time()
        answer = decode_answer(done.stdout)
        ranges, rule = len(answer.waits), answer.stand_in or "its own"
        own_s[-1] += time.process_time() - begun_s
    findings.keep(f"{policy} s", forecast_s)
    note = f"{spread(forecast_s)}; {ranges} ranges for {jobs} waiting jobs; rule: {rule}"
    findings.add(f"{policy}: CPU time of the process", median(forecast_s), "s", _MOST_CPU_S, note)
    findings.add(f"{policy}: CPU time of the controller", median(own_s), "s", note=spread(own_s))


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _request(folder: Path, policy: str, jobs: int, nodes: int) -> Request:
    rng = np.random.default_rng(1)
    rows = [Job(gpus=8, occupied={node: 8}, service_s=float(rng.lognormal(8, 1))) for node in range(nodes)]
    rows += [Job(gpus=int(gpus)) for gpus in rng.choice([1, 2, 4, 8, 16], jobs, p=[0.5, 0.15, 0.15, 0.15, 0.05])]
    state = cluster([Node(8)] * nodes, rows, time_s=_NOW_S)
    state.jobs.duration_estimate_s[:] = _LIMIT_S
    count = len(rows)
    return Request(
        state=state,
        policy=policy,
        journal=str(folder / "journal.sqlite"),
        tracks=str(folder / f"{policy}.json"),
        keys=[(str(1_000_000 + row), row) for row in range(count)],
        users=[f"user{row % 50}" for row in range(count)],
        names=[f"job{row % 7}" for row in range(count)],
        limits_s=[_LIMIT_S] * count,
        ending=[],
        order=list(range(nodes, count)),
        cpu_s=CPU_S,
    )


def _fill_journal(path: Path, count: int) -> None:
    rng = np.random.default_rng(2)
    journal = Journal(path)
    begin_s = int(_NOW_S - 10 * 86_400)
    runs = []
    for number, service_s in enumerate(rng.lognormal(8, 1.5, count).tolist()):
        submit_s = begin_s + 86 * number
        runs.append(
            RunRecord(
                JobKey(str(number + 1), submit_s), f"user{number % 50}", f"job{number % 7}", submit_s + 60.0,
                submit_s + 60.0 + service_s, service_s, int(rng.choice([1, 4, 8])), 1, "COMPLETED",
            )
        )  # fmt: skip
    journal.record_runs(runs)
    journal.close()
