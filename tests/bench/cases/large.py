"""A large Slurm: the time of one read by the command-line client, and the usage of the controller while nothing can start.

A reading is scontrol, its text, and the text parsed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median

from controller.base.config import ControllerSettings
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.clockface import Clockface
from controller.slurm.scontrol.run import CommandRunner, Completed, ProcessRunner
from controller.slurm.select import slurm_environment
from tests.bench.cases.idle import watch
from tests.bench.measuring.figures import Findings, spread
from tests.bench.measuring.large_cluster import PARTITION, Large, large_cluster

JOBS = 10_000
NODES = 2_000


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("large")
    with large_cluster(nodes=NODES, jobs=JOBS) as large:
        watch(findings, large.headway, large.cluster.slurmctld_pid, quick=quick)
        large.headway.stop("controller")  # it would read at the same time
        asyncio.run(_measure(large, findings, readings=5 if quick else 20))
    return findings


async def _measure(large: Large, findings: Findings, readings: int) -> None:
    settings = ControllerSettings(partitions=(PARTITION,), slurm_conf=large.cluster.slurm_conf)
    token = Clockface.secret()
    real = ProcessRunner(bin_dir=None, environment=slurm_environment(settings, token), timeout_s=60.0)
    runner = _Timed(real)
    client = CommandLineClient(runner, token)
    whole: list[float] = []
    scontrol: list[float] = []
    for _ in range(readings + 1):
        begun_s = time.perf_counter()
        snapshot = await client.snapshot()
        whole.append(time.perf_counter() - begun_s)
        scontrol.append(runner.last_s)
        if len(snapshot.jobs) != large.jobs or len(snapshot.nodes) != large.nodes:
            raise RuntimeError(f"{len(snapshot.jobs)} jobs and {len(snapshot.nodes)} nodes are not what was to be read")
        await asyncio.sleep(0.5)
    first, *later = whole
    size = f"{runner.last_bytes / 1e6:.1f} MB of text"
    findings.add("reading", median(later), "s", 0.6, f"{spread(later)}; {size}")
    findings.add("of that: scontrol", median(scontrol[1:]), "s", note=spread(scontrol[1:]))
    findings.add("first reading", first, "s", note=f"{first - scontrol[0]:.3g} s of it parsing everything")
    findings.keep("reading, s", later)
    findings.keep("scontrol, s", scontrol[1:])


class _Timed:
    """A CommandRunner that passes calls on and times them."""

    def __init__(self, inner: CommandRunner) -> None:
        self._inner = inner
        self.last_s = 0.0
        self.last_bytes = 0

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        begun_s = time.perf_counter()
        completed = await self._inner.run(program, arguments, stdin)
        self.last_s = time.perf_counter() - begun_s
        self.last_bytes = len(completed.stdout)
        return completed
