"""Time that the plugin adds to sbatch: with a fresh lease (the job is held) and with a stale one (the job passes through)."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from controller.base.lease import Lease, write_lease
from controller.slurm.model.marks import HOLD_MARK
from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.bench.measuring.figures import Findings, percentile, spread
from tests.bench.measuring.grounds import Side, cluster_name, with_headway, without_headway

_SPEC: dict[str, Any] = {"nodes": 1}


def run(*, quick: bool) -> Findings:
    """Measure, in turns on three clusters."""
    findings = Findings("sbatch")
    with ExitStack() as stack:
        plain = stack.enter_context(without_headway(**_SPEC))
        sides = {
            "without the plugin": plain,
            "fresh lease": stack.enter_context(with_headway(**_SPEC)),
            "stale lease": _with_stale_lease(stack),
        }
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(1 + (20 if quick else 100)):
            for name, side in sides.items():
                seconds = _one(side)
                if number:
                    taken[name].append(seconds)
                time.sleep(0.02)
        _check(sides)
    base = taken["without the plugin"]
    findings.add("without the plugin: median", median(base) * 1e3, "ms", note=spread(base, 1e3))
    for name in ("fresh lease", "stale lease"):
        more = (median(taken[name]) - median(base)) * 1e3
        findings.add(f"{name}: longer by, median", more, "ms", 50.0, spread(taken[name], 1e3))
        tail = (percentile(taken[name], 99) - percentile(base, 99)) * 1e3
        findings.add(f"{name}: longer by, p99", tail, "ms", 50.0)
    for name, seconds_each in taken.items():
        findings.keep(f"{name}, s", seconds_each)
    return findings


def _one(side: Side) -> float:
    """Return the duration of one sbatch. The begin time of the job is tomorrow, so that nothing else happens."""
    argv = side.sbatch_argv(side.new_stamp(), "--begin=now+1day")
    env = side.environment()
    begun_s = time.perf_counter()
    subprocess.run(argv, env=env, capture_output=True, timeout=30, check=True)
    return time.perf_counter() - begun_s


def _check(sides: dict[str, Side]) -> None:
    """Check that only jobs submitted with a fresh lease are held."""
    for name, side in sides.items():
        held = HOLD_MARK in side.cluster.run("scontrol", "-o", "show", "job").stdout
        if held != (name == "fresh lease"):
            raise RuntimeError(f"{name}: jobs are {'held' if held else 'not held'}")


def _with_stale_lease(stack: ExitStack) -> Side:
    """Boot a cluster with plugin and hooks, whose controller has stopped."""
    name = cluster_name()
    headway = stack.enter_context(Installation.prepare(name))
    lease = Lease(int(time.time()) - 3600, 30.0, headway.partitions, 0, 65536)
    write_lease(headway.runtime_dir / "lease", lease)
    cluster = stack.enter_context(MiniCluster(headway.cluster_spec(name=name, **_SPEC)))
    side = Side("stale lease", cluster, headway)
    side.prepare()
    return side
