"""The whole comparison and its results: first the profiles, then every policy on the same arrivals, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean, change, mean_as_json
from slurm.experiments.comparison.live_cluster import ComparisonCluster, EndedJob, comparison_cluster
from slurm.experiments.comparison.mix import Job, arrivals, one_of_each
from slurm.experiments.machine import cpu_ticks
from slurm.experiments.policy_names import in_file_names
from slurm.minicluster.spec import parse_rate

_TIMEOUT_S = 1800.0
Report = Callable[[str], None]
"""Receives a line of progress."""


@dataclass(frozen=True, kw_only=True)
class ComparisonSettings:
    """Settings of a comparison."""

    policies: tuple[str, ...]
    jobs: int = 30
    repeats: int = 3
    rate: str = "200mbit"
    seed: int = 1
    """Seed of the arrivals in the first repeat; the others use the next seeds."""
    load: float = 1.0
    length_s: tuple[float, float] = (8.0, 90.0)
    """Shortest and longest duration of jobs that run alone."""
    alone_s: float = 25.0
    """Time for which every kind first trains alone, so that the agents have a profile of it."""
    preemption: str = "off"


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy on the arrivals of one repeat."""

    policy: str
    repeat: int
    jobs: Sequence[EndedJob]
    cpu_busy: float
    """Busy share of the machine's cores."""

    @property
    def avg_jct_s(self) -> float:
        """Mean over jobs."""
        return float(np.mean([job.jct_s for job in self.jobs]))

    @property
    def p90_jct_s(self) -> float:
        """90th percentile, interpolated linearly between jobs."""
        return float(np.quantile([job.jct_s for job in self.jobs], 0.9))

    @property
    def stops(self) -> int:
        """Number of times that jobs were stopped and restarted."""
        return sum(job.runs - 1 for job in self.jobs)


def compare(
    settings: ComparisonSettings, report: Report, keep: Callable[[Sequence[PolicyRun]], None]
) -> list[PolicyRun]:
    """Run everything that needs a cluster: some minutes for each policy and repeat. Raises MiniClusterError.

    `keep` receives all runs so far after each run, as the whole comparison takes long.
    """
    speed, policies = parse_rate(settings.rate) / 8, settings.policies
    runs: list[PolicyRun] = []
    with comparison_cluster(settings.rate, report, preemption=settings.preemption) as cluster:
        _measure(cluster, one_of_each(settings.alone_s, speed), report)
        for repeat in range(settings.repeats):
            mix = arrivals(settings.jobs, settings.seed + repeat, speed, settings.length_s, settings.load)
            # Each policy is first about equally often, so that none profits from the state of the machine.
            order = [policies[(place + repeat) % len(policies)] for place in range(len(policies))]
            for policy in order:
                runs.append(_run(cluster, mix, policy, repeat))
                keep(runs)
                done = runs[-1]
                report(
                    f"{repeat + 1}. {policy}: mean JCT {done.avg_jct_s:.1f} s, {done.stops} stops, cores {done.cpu_busy:.0%} busy"
                )
    return runs


def _measure(cluster: ComparisonCluster, jobs: Sequence[Job], report: Report) -> None:
    """Run the jobs one after another, so that none shares a link."""
    for job in jobs:
        with cluster.decided_by("fifo"):
            cluster.start(job, job.name)
            cluster.wait([job.name], _TIMEOUT_S)
    report(f"{len(jobs)} kinds and numbers of nodes are measured alone")


def _run(cluster: ComparisonCluster, mix: Sequence[Job], policy: str, repeat: int) -> PolicyRun:
    plain = in_file_names(policy)
    names = [f"{plain}-{repeat}-{job.name}" for job in mix]
    with cluster.decided_by(policy):
        busy, ticks = cpu_ticks()
        began_s = time.time()
        for job, name in zip(mix, names, strict=True):
            time.sleep(max(0.0, began_s + job.submit_s - time.time()))
            cluster.start(job, name)
        cluster.wait(names, _TIMEOUT_S)
        busy_then, ticks_then = cpu_ticks()
    ended = [cluster.ended(job, name) for job, name in zip(mix, names, strict=True)]
    return PolicyRun(policy, repeat, ended, (busy_then - busy) / (ticks_then - ticks))


def summary(runs: Sequence[PolicyRun], policies: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return a row for each policy: means over repeats, and the change of its average JCT against each other policy.

    Repeats in which a policy has not run are left out; there are no rows if no repeat is complete.
    """
    repeats = [{run.repeat for run in runs if run.policy == policy} for policy in policies]
    whole = sorted(set.intersection(*repeats))
    if not whole:
        return []
    by = {(run.policy, run.repeat): run for run in runs}
    of = {policy: [by[policy, repeat] for repeat in whole] for policy in policies}
    average = {policy: [run.avg_jct_s for run in its] for policy, its in of.items()}
    return [
        {
            "policy": policy,
            "avg_jct_s": mean_as_json(Mean.of(average[policy])),
            "p90_jct_s": mean_as_json(Mean.of([run.p90_jct_s for run in of[policy]])),
            "stops": sum(run.stops for run in of[policy]),
            "against": {
                other: mean_as_json(change(average[policy], average[other])) for other in policies if other != policy
            },
        }
        for policy in policies
    ]
