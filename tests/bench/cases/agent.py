"""CPU and memory of an agent: while a job trains, inside and outside of profile windows, and while no job runs."""

from __future__ import annotations

import time

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from tests.bench.measuring.figures import Findings
from tests.bench.measuring.grounds import Side, until, with_headway
from tests.bench.measuring.usage import Load, load, memory_mib
from tests.returning.job import STAMPED_PYTHON, Records, script

_NAME = "watched"
_PROGRAM = "headway-agent"
_RANKS = 2
_STARTS_S = 120.0
_SETTLES_S = 15.0
"""Training before the measurement: imports, the first window, the first reports."""


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("agent")
    seconds = 20.0 if quick else 120.0
    with with_headway("fifo-skip", agents=True, nodes=4, gpus=4) as side:
        records = Records(side.cluster.files.work)
        records.prepare()
        job_id = _submit(side)
        until(lambda: len(records.starts(_NAME)) == _RANKS, "the job trains", _STARTS_S, 0.1)
        time.sleep(_SETTLES_S)
        pids = _agents(side)
        loads = load(pids, seconds)
        busy = [node for node in pids if node in _nodes_of(side, job_id)]
        idle = [node for node in pids if node not in busy]
        _report(findings, "beside a job", [loads[node] for node in busy], f"{seconds:.0f} s, 10 steps a second")
        _report(findings, "on an idle node", [loads[node] for node in idle], f"{seconds:.0f} s")
        peaks = [memory_mib(pids[node])[1] for node in busy]
        findings.add("agent's memory, peak", max(peaks), "MiB", 100.0, f"{len(peaks)} agents beside a job")
        side.cluster.run("scancel", job_id)
        side.clear()
    return findings


def _submit(side: Side) -> str:
    values = {**jobpython.user_environment(), **side.cluster.env}
    words = (f"{key}={value}" for key, value in values.items())
    text = script(_NAME, steps=100_000, pause_s=0.1, python=STAMPED_PYTHON)
    argv = ("env", "-i", *words, "sbatch", "--parsable", "--time=60")
    return side.cluster.run(*argv, stdin=text, user=USER).stdout.strip()


def _agents(side: Side) -> dict[str, int]:
    found = {node: side.cluster.program_on(node, _PROGRAM) for node in side.cluster.node_names}
    return {node: process.pid for node, process in found.items() if process is not None}


def _nodes_of(side: Side, job_id: str) -> set[str]:
    listed = side.cluster.run("squeue", "--noheader", "--jobs", job_id, "--format=%N").stdout.strip()
    return set(side.cluster.run("scontrol", "show", "hostnames", listed).stdout.split())


def _report(findings: Findings, where: str, loads: list[Load], note: str) -> None:
    """Return the usage of the worst agent, including children that it has waited for."""
    worst = max(one.own + one.children for one in loads)
    findings.add(f"agent's CPU {where}", worst, "%", 0.5, f"of one core, the most of {len(loads)}; {note}")
