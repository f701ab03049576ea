"""Laws that the reference simulator must obey on random traces, derived without knowledge of its code."""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby

import pytest

from tests.reference import POLICIES, Job, Result, simulate
from tests.reference.generate import random_trace
from tests.reference.policies import MAY_STOP, NEVER_STOP, WITH_ROUNDS

CLUSTERS = [(1, 1), (1, 8), (4, 2), (3, 4), (8, 8)]
SEEDS = range(5)


def trace_for(seed: int, jobs: int = 40, *, pinned_share: float = 0.0) -> tuple[list[Job], int, int]:
    nodes, gpus_per_node = CLUSTERS[seed % len(CLUSTERS)]
    return random_trace(seed, jobs, nodes, gpus_per_node, pinned_share=pinned_share), nodes, gpus_per_node


def order_of_submission(jobs: list[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: job.submit)


@pytest.mark.parametrize("placement", ["consolidated", "any"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_work_is_lost_or_made_and_gangs_are_whole(policy: str, seed: int, placement: str) -> None:
    jobs, nodes, gpus_per_node = trace_for(seed, pinned_share=0.2)
    cost = Fraction(7, 2)
    results = simulate(jobs, nodes, gpus_per_node, policy, placement=placement, preempt_cost=cost)
    assert set(results) == {job.id for job in jobs}
    for job in jobs:
        result = results[job.id]
        assert job.submit <= result.first_start
        assert result.service == job.duration + cost * result.preemptions <= result.finish - result.first_start
        assert sum(result.last_nodes.values()) == job.gpus
        assert all(0 <= node < nodes and 0 < gpus <= gpus_per_node for node, gpus in result.last_nodes.items())
        if policy in NEVER_STOP or not job.preemptible:
            assert result.preemptions == 0
            assert result.finish == result.first_start + job.duration


@pytest.mark.parametrize("policy", NEVER_STOP)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_gpu_is_used_twice_and_layouts_are_consolidated(policy: str, seed: int) -> None:
    jobs, nodes, gpus_per_node = trace_for(seed)
    results = simulate(jobs, nodes, gpus_per_node, policy)
    for result in results.values():
        held = [0] * nodes
        for other in results.values():
            if other.first_start <= result.first_start < other.finish:
                for node, gpus in other.last_nodes.items():
                    held[node] += gpus
        assert max(held) <= gpus_per_node
        assert sum(gpus < gpus_per_node for gpus in result.last_nodes.values()) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_fifo_starts_in_order_of_submission_and_keeps_no_head_waiting_that_fits(seed: int) -> None:
    jobs, nodes, gpus_per_node = trace_for(seed)
    results = simulate(jobs, nodes, gpus_per_node, "fifo", placement="any")
    starts = [results[job.id].first_start for job in order_of_submission(jobs)]
    assert starts == sorted(starts)
    # With placement "any" a head waits for a number of GPUs only: it starts when it has arrived, the one before it has
    # started, and enough of the others are done.
    for head, job in enumerate(order_of_submission(jobs)):
        before = order_of_submission(jobs)[:head]
        earliest = max([job.submit, *starts[:head]])
        instants = sorted(
            {earliest} | {results[each.id].finish for each in before if results[each.id].finish > earliest}
        )
        used = {now: sum(each.gpus for each in before if results[each.id].finish > now) for now in instants}
        assert starts[head] == next(now for now in instants if used[now] + job.gpus <= nodes * gpus_per_node)


@pytest.mark.parametrize("seed", SEEDS)
def test_backfilling_does_not_change_when_the_first_blocked_head_starts(seed: int) -> None:
    """Until a job must wait, backfill and fifo are the same; afterwards a job that passes the head must not delay it."""
    jobs, nodes, gpus_per_node = trace_for(seed)
    strict = simulate(jobs, nodes, gpus_per_node, "fifo")
    easy = simulate(jobs, nodes, gpus_per_node, "backfill")
    first = next((job for job in order_of_submission(jobs) if strict[job.id].first_start > job.submit), None)
    assert first is not None, "no job waits in this trace: it checks nothing"
    assert easy[first.id].first_start == strict[first.id].first_start


@pytest.mark.parametrize("seed", range(6))
def test_srtf_on_one_gpu_has_the_least_average_completion_time(seed: int) -> None:
    """Schrage 1968: no discipline of any kind does better on one machine."""
    jobs = random_trace(seed, 30, 1, 1)
    totals = {policy: total_finish(simulate(jobs, 1, 1, policy)) for policy in POLICIES}
    assert totals["srtf"] == min(totals.values())
    assert totals["srtf"] < totals["fifo"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_on_one_gpu_the_machine_never_idles_while_a_job_waits(policy: str, seed: int) -> None:
    """The last finish of every busy period is that of a single server, whatever the order."""
    jobs = random_trace(seed, 30, 1, 1)
    done = Fraction(0)
    for job in order_of_submission(jobs):
        done = max(done, job.submit) + job.duration
    assert max(each.finish for each in simulate(jobs, 1, 1, policy).values()) == done


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["srtf", "las"])
def test_count_variants_are_the_same_with_placement_any_and_on_one_node(policy: str, seed: int) -> None:
    jobs, nodes, gpus_per_node = trace_for(seed)
    by_count = simulate(jobs, nodes, gpus_per_node, f"{policy}-count")
    assert by_count == simulate(jobs, nodes, gpus_per_node, policy, placement="any")
    whole = nodes * gpus_per_node
    assert simulate(jobs, 1, whole, f"{policy}-count") == simulate(jobs, 1, whole, policy)


@pytest.mark.parametrize("policy", POLICIES)
def test_only_policies_with_rounds_depend_on_their_length(policy: str) -> None:
    jobs, nodes, gpus_per_node = trace_for(3)
    same = simulate(jobs, nodes, gpus_per_node, policy, round_s=50) == simulate(jobs, nodes, gpus_per_node, policy)
    assert same == (policy not in WITH_ROUNDS)


@pytest.mark.parametrize("policy", POLICIES)
def test_times_may_be_shifted_by_whole_rounds(policy: str) -> None:
    jobs, nodes, gpus_per_node = trace_for(4)
    shift = Fraction(300 * 10**6)
    later = [Job(job.id, job.submit + shift, job.gpus, job.duration) for job in jobs]
    moved = simulate(later, nodes, gpus_per_node, policy)
    for name, result in simulate(jobs, nodes, gpus_per_node, policy).items():
        assert moved[name] == Result(
            result.first_start + shift, result.finish + shift, result.service, result.preemptions, result.last_nodes
        )


def test_preemptive_policies_do_stop_jobs_on_these_traces() -> None:
    for policy in MAY_STOP:
        stops = sum(
            result.preemptions for seed in SEEDS for result in simulate(*trace_for(seed), policy=policy).values()
        )
        assert stops > 20, f"{policy} stopped {stops} jobs: these traces check too little"


def total_finish(results: dict[str, Result]) -> Fraction:
    return sum((each.finish for each in results.values()), Fraction(0))


class TestGenerator:
    def test_the_same_seed_gives_the_same_trace(self) -> None:
        assert random_trace(7, 50, 4, 8, pinned_share=0.5) == random_trace(7, 50, 4, 8, pinned_share=0.5)
        assert random_trace(7, 50, 4, 8) != random_trace(8, 50, 4, 8)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_jobs_fit_and_times_are_whole_milliseconds(self, seed: int) -> None:
        jobs, nodes, gpus_per_node = trace_for(seed, 100)
        assert len({job.id for job in jobs}) == 100
        for job in jobs:
            assert 1 <= job.gpus <= nodes * gpus_per_node
            assert (job.submit * 1000).denominator == (job.duration * 1000).denominator == 1
            assert job.submit >= 0
            assert job.duration > 0
            assert job.preemptible

    def test_traces_contain_the_intended_cases(self) -> None:
        traces = [random_trace(seed, 100, 4, 8, pinned_share=0.2) for seed in range(10)]
        jobs = [job for trace in traces for job in trace]
        clumps = [len(list(group)) for trace in traces for _, group in groupby(sorted(job.submit for job in trace))]
        assert max(clumps) >= 5, "clumps at one instant"
        assert all(len({job.duration for job in trace}) < 80 for trace in traces), "equal durations"
        assert any(job.gpus == 32 for job in jobs), "gangs of the whole cluster"
        assert any(8 < job.gpus < 32 and job.gpus % 8 for job in jobs), "nodes and a remainder"
        assert {job.preemptible for job in jobs} == {True, False}
        assert any(trace != order_of_submission(trace) for trace in traces), "rows out of order"
        assert any(trace == order_of_submission(trace) for trace in traces), "rows in order"
        assert any(job.submit % 300 == 0 and job.submit > 0 for job in jobs), "arrivals when a round begins"

    def test_jobs_arrive_when_others_finish(self) -> None:
        met = 0
        for seed in range(5):
            jobs = random_trace(seed, 60, 4, 8)
            finishes = {result.finish for result in simulate(jobs, 4, 8, "fifo-skip").values()}
            met += sum(job.submit in finishes for job in jobs)
        assert met >= 10
