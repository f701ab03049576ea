"""CPU and memory of the controller while nothing happens, on a small cluster with an empty queue."""

from __future__ import annotations

import time
from collections.abc import Mapping

from slurm.testbed.installation import Installation
from tests.bench.measuring.figures import Findings
from tests.bench.measuring.grounds import with_headway
from tests.bench.measuring.usage import Load, load, memory_mib


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("idle")
    with with_headway(nodes=4) as side:
        assert side.headway is not None
        watch(findings, side.headway, side.cluster.slurmctld_pid, quick=quick)
    return findings


def watch(findings: Findings, headway: Installation, slurmctld: int, *, quick: bool) -> None:
    """Measure CPU and memory of controller, policy server and slurmctld, after all work of their start is done."""
    seconds = 20.0 if quick else 60.0
    time.sleep(3.0 if quick else 10.0)
    controller, policy = headway.processes["controller"].pid, headway.processes["policy"].pid
    cycles = headway.ask("status")["decisions"]
    loads = load({"controller": controller, "policy": policy, "slurmctld": slurmctld}, seconds)
    decisions = headway.ask("status")["decisions"] - cycles
    _report_cpu(findings, loads, f"{seconds:.0f} s, {decisions} decisions")
    now, peak = memory_mib(controller)
    note = f"{now:.0f} MiB now; policy server {memory_mib(policy)[0]:.0f} MiB"
    findings.add("controller's memory, peak", peak, "MiB", 400.0, note)


def _report_cpu(findings: Findings, loads: Mapping[str, Load], note: str) -> None:
    mine = loads["controller"]
    findings.add("idle CPU, controller and scontrol", mine.own + mine.children, "%", 2.0, f"of one core; {note}")
    findings.add("idle CPU, controller alone", mine.own, "%")
    findings.add("idle CPU, policy server", loads["policy"].own, "%")
    findings.add("idle CPU, slurmctld", loads["slurmctld"].own, "%", note="mostly its own doing")
