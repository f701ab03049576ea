"""The controller beside a real slurmctld with 100,000 held jobs and 10,000 nodes: reading, cycle, memory, lease.

No node is open, so nothing starts. Between two cycles some jobs change and a hook wakes the controller.
"""

from __future__ import annotations

import os
import time
from statistics import median

from tests.bench.measuring.figures import Findings, spread
from tests.bench.measuring.grounds import cluster_name, until
from tests.bench.measuring.usage import cpu_time, memory_mib
from tests.hollow.cluster import Hollow, hollow_cluster
from tests.hollow.watch import LeaseWatch, cycles, failed_cycles

JOBS = 100_000
NODES = 10_000
_CHANGED = 100
_SEEN_S = 900.0


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("size")
    jobs, nodes = (JOBS // 10, NODES // 10) if quick else (JOBS, NODES)
    with hollow_cluster(cluster_name(), nodes=nodes, plugin=False, log_level="debug") as hollow:
        hollow.close_nodes()
        hollow.submit(jobs)
        hollow.headway.start_policy("srtf")
        hollow.headway.start_controller(_SEEN_S)
        watch(findings, hollow, jobs, rounds=5 if quick else 12)
    return findings


def watch(findings: Findings, hollow: Hollow, jobs: int, rounds: int) -> None:
    """Have the controller go through that many cycles, and report them."""
    headway = hollow.headway
    pid = headway.processes["controller"].pid
    until(lambda: headway.ask("status")["jobs_waiting"] >= jobs, "the queue is seen", _SEEN_S, 2.0)
    with LeaseWatch(headway.runtime_dir / "lease") as lease:
        before = cpu_time(pid)
        for number in range(1, rounds + 1):
            seen = len(cycles(headway.log("controller")))
            hollow.change(_CHANGED, number)
            headway.wake()
            until(lambda: len(cycles(headway.log("controller"))) > seen, "a cycle", _SEEN_S, 0.2)  # noqa: B023 - at once
        used = cpu_time(pid)
    first, *later = cycles(headway.log("controller"))
    plans, reads = [plan for _, plan in later], [read for read, _ in later]
    status = headway.ask("status")
    note = f"{status['fallbacks']} of {status['decisions']} decisions by the fallback; load {os.getloadavg()[0]:.0f}"
    findings.add("observe to plan", median(plans), "s", 2.0, f"{spread(plans)}; {note}")
    findings.add("the same, longest", max(plans), "s", 2.0)
    findings.add("full read", median(reads), "s", note=spread(reads))
    findings.add("first cycle: read and parse", first[0], "s", note=f"observe to plan {first[1]:.3g} s")
    findings.add("CPU of the controller for a cycle", (used.own_s - before.own_s) / len(later), "s", note="reads too")
    findings.add("controller's memory, peak", memory_mib(pid)[1], "MiB", 2048.0)
    findings.add("longest time between two leases", lease.longest_s, "s", 15.0, "stale after 30 s")
    findings.add("cycles that failed", failed_cycles(headway.log("controller")), "", 0.0)
    findings.add("jobs that the controller lacks", jobs - status["jobs_waiting"], "", 0.0)
    findings.keep("observe to plan, s", plans)
    findings.keep("read, s", reads)
    findings.keep("time of measurement, s", [time.time()])
