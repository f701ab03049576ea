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
