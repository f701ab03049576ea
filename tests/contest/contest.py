"""The whole contest and its results: first the profiles, then every policy on the same arrivals, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policies.learned.evaluation.statistics import Mean, change
from slurm.minicluster.spec import parse_rate
from tests.contest.ground import Ended, Ground, ground
from tests.contest.mix import Job, arrivals, one_of_each
from tests.fidelity.measuring.replay import cpu_s

_TIMEOUT_S = 1800.0
Says = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Settings of a contest."""

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
class Turn:
    """One policy on one repeat's arrivals."""

    policy: str
    repeat: int
    jobs: Sequence[Ended]
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


def hold(plan: Plan, says: Says, keep: Callable[[Sequence[Turn]], None]) -> list[Turn]:
    """Run everything that needs a cluster: some minutes for each policy and repeat. Raises ContestError.

    `keep` receives all turns so far after each turn, as the whole contest takes long.
    """
    speed = parse_rate(plan.rate) / 8
    turns: list[Turn] = []
    with ground(plan.rate, says, preemption=plan.preemption) as booted:
        _measure(booted, one_of_each(plan.alone_s, speed), says)
        for repeat in range(plan.repeats):
            mix = arrivals(plan.jobs, plan.seed + repeat, speed, plan.length_s, plan.load)
            # Each policy is first about equally often, so that none profits from the state of the machine.
            order = [plan.policies[(place + repeat) % len(plan.policies)] for place in range(len(plan.policies))]
            for policy in order:
                turns.append(_turn(booted, mix, policy, repeat))
                keep(turns)
                done = turns[-1]
                says(
                    f"{repeat + 1}. {policy}: mean JCT {done.avg_jct_s:.1f} s, {done.stops} stops, cores {done.cpu_busy:.0%} busy"
                )
    return turns


def _measure(booted: Ground, jobs: Sequence[Job], says: Says) -> None:
    """Run the jobs one after another, so that none shares a link."""
    for job in jobs:
        with booted.decided_by("fifo"):
            booted.submit(job, job.name)
            booted.wait([job.name], _TIMEOUT_S)
    says(f"{len(jobs)} kinds and numbers of nodes are measured alone")


def _turn(booted: Ground, mix: Sequence[Job], policy: str, repeat: int) -> Turn:
    names = [f"{policy.replace(':', '-').replace('=', '-')}-{repeat}-{job.name}" for job in mix]
    with booted.decided_by(policy):
        busy_s, all_s = cpu_s()
        began_s = time.time()
        for job, name in zip(mix, names, strict=True):
            time.sleep(max(0.0, began_s + job.submit_s - time.time()))
            booted.submit(job, name)
        booted.wait(names, _TIMEOUT_S)
        busy_then_s, all_then_s = cpu_s()
    ended = [booted.ended(job, name) for job, name in zip(mix, names, strict=True)]
    return Turn(policy, repeat, ended, (busy_then_s - busy_s) / (all_then_s - all_s))


def summary(turns: Sequence[Turn], policies: Sequence[str]) -> list[Mapping[str, Any]]:
    """Return a row for each policy: means over repeats, and the change of its average JCT against each other policy.

    Repeats in which a policy has not had its turn are left out; there are no rows if no repeat is complete.
    """
    had = [{turn.repeat for turn in turns if turn.policy == policy} for policy in policies]
    whole = sorted(set.intersection(*had))
    if not whole:
        return []
    by = {(turn.policy, turn.repeat): turn for turn in turns}
    of = {policy: [by[policy, repeat] for repeat in whole] for policy in policies}
    average = {policy: [turn.avg_jct_s for turn in its] for policy, its in of.items()}
    return [
        {
            "policy": policy,
            "avg_jct_s": _pair(Mean.of(average[policy])),
            "p90_jct_s": _pair(Mean.of([turn.p90_jct_s for turn in of[policy]])),
            "stops": sum(turn.stops for turn in of[policy]),
            "against": {other: _pair(change(average[policy], average[other])) for other in policies if other != policy},
        }
        for policy in policies
    ]


def _pair(mean: Mean) -> dict[str, float | None]:
    return {"mean": mean.mean, "ci95": mean.ci95}
