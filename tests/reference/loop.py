"""The clock: it advances from one event to the next."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.reference.cluster import PLACEMENTS, Cluster
from tests.reference.model import Active, Job, Nodes, Result
from tests.reference.policies import POLICIES, WITH_ROUNDS, decide


def simulate(
    jobs: Sequence[Job],
    nodes: int,
    gpus_per_node: int,
    policy: str,
    *,
    round_s: Fraction | int = 300,
    placement: str = "consolidated",
    preempt_cost: Fraction | int = 0,
) -> dict[str, Result]:
    """Run a trace to its end. At one instant: all finishes, then all arrivals, then one decision.

    A job of duration 0 that is started finishes at the same instant, after that decision; another decision follows.
    """
    check(jobs, nodes, gpus_per_node, policy, round_s, placement, preempt_cost)
    cluster = Cluster(nodes, gpus_per_node, placement)
    in_order = sorted(jobs, key=lambda job: job.submit)  # stable: rows with equal times keep their order
    to_come = [Active(index, job, left=Fraction(job.duration)) for index, job in enumerate(in_order)]
    active: list[Active] = []
    results: dict[str, Result] = {}
    now = Fraction(0)
    while to_come or active:
        before, now = now, next_instant(to_come, active, now, round_s if policy in WITH_ROUNDS else None)
        for each in active:
            if each.runs:
                each.run_for(now - before)
        for each in active:
            if each.runs and each.run_time_left == 0:
                results[each.job.id] = result(each, now)
        active = [each for each in active if each.job.id not in results]
        active += [each for each in to_come if each.job.submit == now]
        to_come = [each for each in to_come if each.job.submit > now]
        apply(decide(policy, active, cluster, now), active, now, Fraction(preempt_cost))
        cluster.free(each.nodes for each in active)  # asserts that no GPU is used twice
    return results


def next_instant(
    to_come: Sequence[Active], active: Sequence[Active], now: Fraction, round_s: Fraction | int | None
) -> Fraction:
    """The first arrival, finish or round from now on. Rounds are at whole multiples of `round_s`, while any job waits."""
    instants = [Fraction(each.job.submit) for each in to_come]
    instants += [now + each.run_time_left for each in active if each.runs]
    if round_s is not None and any(not each.runs for each in active):
        instants.append((now // round_s + 1) * Fraction(round_s))
    return min(instants)


def apply(wanted: dict[int, Nodes], active: Sequence[Active], now: Fraction, preempt_cost: Fraction) -> None:
    """Stop running jobs that are not wanted, and start waiting jobs that are. No job is moved."""
    for each in active:
        if each.runs and each.index not in wanted:
            assert each.job.preemptible, f"{each.job.id} must not be stopped"
            each.nodes = {}
            each.preemptions += 1
            each.overhead += preempt_cost
        elif each.runs:
            assert each.nodes == wanted[each.index], f"{each.job.id} must not be moved"
        elif each.index in wanted:
            each.nodes = wanted[each.index]
            assert sum(each.nodes.values()) == each.job.gpus, f"{each.job.id} must start whole"
            if each.first_start is None:
                each.first_start = now


def result(active: Active, now: Fraction) -> Result:
    """Return the result of a job that finishes now."""
    assert active.first_start is not None
    return Result(active.first_start, now, active.service, active.preemptions, active.nodes)


def check(
    jobs: Sequence[Job],
    nodes: int,
    gpus_per_node: int,
    policy: str,
    round_s: Fraction | int,
    placement: str,
    preempt_cost: Fraction | int,
) -> None:
    """Raise ValueError for arguments without a meaning."""
    if nodes < 1 or gpus_per_node < 1:
        raise ValueError(f"a cluster of {nodes}x{gpus_per_node} has no GPUs")
    if policy not in POLICIES:
        raise ValueError(f"no policy {policy!r}; there are {', '.join(POLICIES)}")
    if placement not in PLACEMENTS:
        raise ValueError(f"no placement {placement!r}; there are {', '.join(PLACEMENTS)}")
    if round_s <= 0 or preempt_cost < 0:
        raise ValueError(f"round_s {round_s} must be positive and preempt_cost {preempt_cost} not negative")
    if len({job.id for job in jobs}) < len(jobs):
        raise ValueError("two jobs have the same id")
    for job in jobs:
        if not 1 <= job.gpus <= nodes * gpus_per_node:
            raise ValueError(f"job {job.id} asks for {job.gpus} GPUs of {nodes * gpus_per_node}")
        if job.submit < 0 or job.duration < 0:
            raise ValueError(f"job {job.id} has a negative time")
