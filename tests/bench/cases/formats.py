"""Ways to read a long queue: text and JSON of Slurm's commands, in time, CPU of the command, and CPU of slurmctld.

Each command sends the same request to slurmctld, so that JSON costs the command and its reader, not slurmctld.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.parse import parse_job
from slurm.minicluster.cluster import MiniCluster
from tests.bench.measuring.figures import Findings, spread
from tests.bench.measuring.large_cluster import large_cluster
from tests.bench.measuring.usage import cpu_time

JOBS = 10_000
NODES = 2_000


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    argv: tuple[str, ...]
    read: Callable[[str], int]
    """Returns the number of jobs in the output."""


@dataclass(frozen=True, slots=True)
class _Sample:
    wall_s: float
    command_s: float
    """CPU time of the command."""
    slurmctld_s: float
    """CPU time of slurmctld meanwhile."""
    read_s: float
    """CPU time in which this process reads the output."""
    size: int


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("formats")
    jobs, nodes = (2_000, 400) if quick else (JOBS, NODES)
    clock = Clockface.secret()
    with large_cluster(nodes=nodes, jobs=jobs) as large:
        large.headway.stop("controller")  # it would read at the same time
        ways = (
            _Way("scontrol, text", ("scontrol", "-o", "-d", "show", "job"), lambda text: _parsed(text, clock)),
            _Way("squeue --json", ("squeue", "--json"), lambda text: len(json.loads(text)["jobs"])),
        )
        found = _alternately(large.cluster, ways, clock, jobs, times=5 if quick else 15)
    for way in ways:
        _report(findings, way.name, found[way.name], jobs)
    return findings


def _parsed(text: str, clock: Clockface) -> int:
    return sum(len(parse_job(line, clock).jobs) for line in text.splitlines() if line)


def _alternately(
    cluster: MiniCluster, ways: Sequence[_Way], clock: Clockface, jobs: int, times: int
) -> dict[str, list[_Sample]]:
    found: dict[str, list[_Sample]] = {way.name: [] for way in ways}
    for _ in range(times):
        for way in ways:
            found[way.name].append(_once(cluster, way, clock, jobs))
    return found


def _once(cluster: MiniCluster, way: _Way, clock: Clockface, jobs: int) -> _Sample:
    environment = {**os.environ, **cluster.env, "SLURM_TIME_FORMAT": clock.format}
    before, served_s = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_time(cluster.slurmctld_pid).own_s
    begun_s = time.perf_counter()
    done = subprocess.run(way.argv, env=environment, capture_output=True, text=True, timeout=300, check=True)
    wall_s = time.perf_counter() - begun_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    slurmctld_s = cpu_time(cluster.slurmctld_pid).own_s - served_s
    begun_s = time.process_time()
    if (read := way.read(done.stdout)) != jobs:
        raise RuntimeError(f"{way.name}: {read} jobs are not what was to be read")
    command_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _Sample(wall_s, command_s, slurmctld_s, time.process_time() - begun_s, len(done.stdout))


def _report(findings: Findings, name: str, samples: Sequence[_Sample], jobs: int) -> None:
    walls = [sample.wall_s for sample in samples]
    note = f"{jobs} jobs, {samples[0].size / 1e6:.1f} MB; {spread(walls)}"
    findings.add(f"{name}: time", median(walls), "s", note=note)
    for what, values in (
        ("CPU of the command", [sample.command_s for sample in samples]),
        ("CPU of slurmctld", [sample.slurmctld_s for sample in samples]),
        ("CPU to read the output", [sample.read_s for sample in samples]),
    ):
        findings.add(f"{name}: {what}", median(values), "s", note=spread(values))
        findings.keep(f"{name}: {what}, s", values)
