"""The preemptive rule in compiled code against the same rule of the policies, where many jobs wait."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import NodeChange, Settings
from simulator.engine.simulation import Simulation
from simulator.kernel.constants import BY_ATTAINED, CONSOLIDATED
from simulator.kernel.job import ActiveJob
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.kernel.select import Selection
from simulator.traces.trace import Trace
from tests.unit.simulator.engine.build import Asked, Sharing, baseline, outcomes, trace_of

CHANGES = (
    NodeChange(900.0, 1, "drain"),
    NodeChange(1500.0, 4, "down"),
    NodeChange(4000.0, 1, "up"),
    NodeChange(5000.0, 4, "up"),
)
SIZES = ([1, 2, 3, 4, 8, 12, 16], [0.45, 0.15, 0.05, 0.1, 0.15, 0.05, 0.05])


def crowded(seed: int, jobs: int = 120) -> Trace:
    """Jobs of many sizes that come faster than 6x8 can run them; one in seven must not be stopped."""
    rng = np.random.default_rng(seed)
    submit = np.sort(rng.uniform(0, 4000, jobs)).round(3)
    gpus = rng.choice(SIZES[0], jobs, p=SIZES[1])
    rows = list(zip(submit.tolist(), gpus.tolist(), rng.lognormal(6, 1.3, jobs).round(3).tolist(), strict=True))
    return trace_of(*rows, preemptible=[row % 7 != 0 for row in range(jobs)])


@pytest.mark.parametrize("name", ["srtf", "srsf", "las", "las-levels", "tiresias"])
def test_the_kernel_selects_what_the_policy_selects(name: str) -> None:
    for seed in range(3):
        runs = []
        for policy in (baseline(name), Asked(baseline(name))):
            settings = Settings(preempt_cost_s=7.5, changes=CHANGES)
            run = Simulation(crowded(seed), parse_cluster("6x8"), policy, settings, [Sharing(0.9)])
            run.run()
            runs.append(run)
        by_rule, by_asking = runs
        assert outcomes(by_rule) == outcomes(by_asking)
        assert any(stops for *_, stops, _ in outcomes(by_rule).values())


@pytest.mark.parametrize("name", ["srtf", "las"])
def test_the_kernel_counts_many_newcomers_and_selects_what_the_policy_selects(name: str) -> None:
    """Given short jobs that come at once and replace running ones, dozens are selected before running jobs that stay."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        submit = [*rng.uniform(0, 100, 60).round(3), *rng.uniform(900, 901, 300).round(3)]
        gpus = [*rng.choice([1, 2, 3], 60), *rng.choice(SIZES[0], 300, p=SIZES[1])]
        times = [*rng.lognormal(9, 1, 60).round(3), *rng.lognormal(6, 2, 300).round(3)]
        rows = sorted(zip(map(float, submit), map(int, gpus), map(float, times), strict=True))
        trace = trace_of(*rows, preemptible=[row % 7 != 0 for row in range(360)])
        runs = []
        for policy in (baseline(name), Asked(baseline(name))):
            run = Simulation(trace, parse_cluster("16x8"), policy, Settings(preempt_cost_s=7.5, changes=CHANGES))
            run.run(until_s=8000.0)
            runs.append(outcomes(run))
        assert runs[0] == runs[1]


def counted(
    waiting: list[int], running: list[tuple[int, int]], gpus: tuple[int, ...]
) -> tuple[Selection, list[ActiveJob]]:
    """Return a selection of jobs of 1 or 4 GPUs in front of running ones, each of (GPUs, node), and the waiting jobs."""
    pool = NodePool(gpus)
    pool.divide([1, 0, 4, 0], [1, 0, 1, 0])
    jobs = [ActiveJob(row, 0, size, size // 4, 100, 100, 0, 0) for row, size in enumerate(waiting)]
    loop = Loop(pool, lambda row: jobs[row], [], BY_ATTAINED)
    loop.num_waiting = len(jobs)
    for number, (size, node) in enumerate(running):
        job = ActiveJob(len(jobs) + number, 0, size, size // 4, 100, 100, 0, 0)
        loop.start_on(job, [node], [size])
        job.attained = 50
    for job in jobs:
        loop.queues[job.size].append(job)
    selection = Selection(pool, CONSOLIDATED)
    selection.decide(loop)
    return selection, jobs


def test_many_newcomers_get_nodes_around_the_running_jobs_that_stay() -> None:
    selection, jobs = counted([4] * 52 + [1] * 15, [(1, 0), (1, 1)], (4,) * 60)
    assert selection.counted
    assert [job.occupied for job in jobs] == [4] * 52 + [1] * 15
    assert sorted((node, share) for job in jobs[52:] for node, share in zip(job.nodes, job.counts, strict=True))[
        :6
    ] == ([(0, 1)] * 3 + [(1, 1)] * 3)


@pytest.mark.parametrize("name", ["srtf", "srsf"])
def test_a_new_policy_does_not_select_by_the_keys_of_the_one_before(name: str) -> None:
    run = Simulation(crowded(5), parse_cluster("6x8"), baseline("las"), Settings(preempt_cost_s=7.5))
    run.run(until_s=2500.0)
    by_rule, by_asking = run.fork(baseline(name)), run.fork(Asked(baseline(name)))
    by_rule.run()
    by_asking.run()
    assert outcomes(by_rule) == outcomes(by_asking)


@pytest.mark.parametrize("most", [1, 2])
def test_a_decision_that_lays_out_too_much_is_given_up_as_a_whole(most: int) -> None:
    # Two jobs of 4 GPUs come before a running one of 2, which stays if both are laid out around it.
    pool = NodePool((4, 4, 4))
    pool.divide([2, 0, 4, 0], [1, 0, 1, 0])
    running, *waiting = [
        ActiveJob(row, 0, gpus, gpus // 4, 100, 100, 0, 0) for row, gpus in enumerate([2, 4, 4])
    ]  # fmt: skip
    loop = Loop(pool, lambda row: waiting[row], [], BY_ATTAINED)
    loop.num_waiting = 3
    loop.start_on(running, [0], [2])
    running.attained = 50
    loop.queues[1].extend(waiting)
    selection = Selection(pool, CONSOLIDATED)
    selection.most_laid_out = most
    selection.decide(loop)

    assert (selection.laid_out, bool(selection.gave_up())) == (2, most < 2)
    assert [job.occupied for job in (running, *waiting)] == ([2, 0, 0] if most < 2 else [2, 4, 4])
    assert loop.num_waiting == len(loop.queues[1]) == (2 if most < 2 else 0)
