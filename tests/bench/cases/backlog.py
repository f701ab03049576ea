"""20,000 jobs that can all start at once, when a real slurmctld opens its nodes: what is pinned and released, and how fast.

The nodes have no slurmd, so a job that starts does nothing. The controller runs as installed, with plugin and hooks.
"""

from __future__ import annotations

import os
import time

from tests.bench.measuring.figures import Findings
from tests.bench.measuring.grounds import cluster_name, until
from tests.bench.measuring.usage import cpu_time, memory_mib
from tests.hollow.cluster import GPUS, Hollow, hollow_cluster
from tests.hollow.watch import LeaseWatch, cycles, failed_cycles, released_twice, steps

JOBS = 20_000
_LONGEST_S = 3600.0


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("backlog")
    jobs = JOBS // 10 if quick else JOBS
    with hollow_cluster(cluster_name(), nodes=jobs // GPUS, log_level="debug") as hollow:
        hollow.close_nodes()
        hollow.submit(jobs)
        hollow.headway.start_policy("srtf")
        hollow.headway.start_controller(_LONGEST_S)
        start_all(findings, hollow, jobs)
    return findings


def start_all(findings: Findings, hollow: Hollow, jobs: int) -> None:
    """Open the nodes, and wait until all jobs have been released."""
    headway = hollow.headway
    journal = headway.folder / "state" / "journal.sqlite"
    controller, slurmctld = headway.processes["controller"].pid, hollow.cluster.slurmctld_pid
    until(lambda: headway.ask("status")["jobs_waiting"] >= jobs, "the queue is seen", _LONGEST_S, 2.0)
    before, calls, earlier = [cpu_time(pid) for pid in (controller, slurmctld)], hollow.scontrol.calls, _cycles(hollow)
    begun_s = time.monotonic()
    with LeaseWatch(headway.runtime_dir / "lease") as lease:
        hollow.open_nodes()
        headway.wake()
        until(lambda: steps(journal, "release").get("done", 0) >= jobs, "all are released", _LONGEST_S, 1.0)
        took_s = time.monotonic() - begun_s
    used = [cpu_time(pid) for pid in (controller, slurmctld)]
    own_s, children_s = used[0].own_s - before[0].own_s, used[0].children_s - before[0].children_s
    ctld_s = used[1].own_s - before[1].own_s
    until(lambda: hollow.states().get("RUNNING", 0) == jobs, "all run", _LONGEST_S, 2.0)
    refused = {verb: sum(steps(journal, verb).values()) - steps(journal, verb).get("done", 0) for verb in _VERBS}
    spent = f"controller {own_s:.0f} s, scontrol {children_s:.0f} s, slurmctld {ctld_s:.0f} s of CPU"
    findings.add("all released", took_s, "s", note=f"{jobs / took_s:.0f} jobs a second; load {os.getloadavg()[0]:.0f}")
    findings.add("CPU for a job", (own_s + children_s + ctld_s) / jobs * 1e3, "ms", note=spent)
    findings.add("calls of scontrol", hollow.scontrol.calls - calls, "", note=f"{_cycles(hollow) - earlier} cycles")
    findings.add("steps that failed", sum(refused.values()), "", 0.0, ", ".join(f"{k} {v}" for k, v in refused.items()))
    findings.add("jobs released twice", released_twice(journal), "", 0.0)
    findings.add("longest time between two leases", lease.longest_s, "s", 15.0, "stale after 30 s")
    findings.add("controller's memory, peak", memory_mib(controller)[1], "MiB", 2048.0)
    findings.add("cycles that failed", failed_cycles(headway.log("controller")), "", 0.0)


_VERBS = ("pin", "release", "unmark", "hold")


def _cycles(hollow: Hollow) -> int:
    return len(cycles(hollow.headway.log("controller")))
