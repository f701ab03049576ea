"""The engine against the reference simulator: another algorithm, exact arithmetic, no shared code."""

from __future__ import annotations

from fractions import Fraction

import pytest

from simulator.engine.settings import Settings
from tests.reference import POLICIES, simulate
from tests.reference.generate import random_trace
from tests.unit.simulator.engine.build import (
    BASELINES,
    WITH_ROUNDS,
    Asked,
    baseline,
    expected,
    outcomes,
    ran,
    trace_like,
)

CLUSTERS = ((1, 4), (3, 4), (4, 8), (2, 3))
COSTS = (Fraction(0), Fraction(13, 4))


def agrees(
    seed: int, jobs: int, nodes: int, gpus: int, name: str, *, anywhere: bool, cost: Fraction, pinned: float
) -> None:
    """The kernel's rule, the policy's own `decide`, and the reference all come to the same, to the nanosecond."""
    trace = random_trace(seed, jobs, nodes, gpus, pinned_share=pinned)
    round_s = 300 if seed % 2 else 110
    placement = "any" if anywhere else "consolidated"
    exact = expected(simulate(trace, nodes, gpus, name, round_s=round_s, placement=placement, preempt_cost=cost))
    policy = baseline(name, anywhere=anywhere, round_s=round_s)
    settings = Settings(preempt_cost_s=float(cost))
    by_rule = ran(trace_like(trace), f"{nodes}x{gpus}", policy, settings)
    by_asking = ran(trace_like(trace), f"{nodes}x{gpus}", Asked(policy), settings)
    assert outcomes(by_rule) == exact
    assert outcomes(by_asking) == exact
    if name not in WITH_ROUNDS:  # a policy without a rule also decides at rounds at which no job waits
        assert by_rule.decisions == by_asking.decisions


def test_every_baseline_of_the_reference_is_tested() -> None:
    assert sorted(BASELINES) == sorted(POLICIES)


@pytest.mark.parametrize("anywhere", [False, True], ids=["consolidated", "anywhere"])
@pytest.mark.parametrize("cost", COSTS, ids=["free", "cost"])
@pytest.mark.parametrize("name", BASELINES)
def test_the_engine_agrees_with_the_reference(name: str, cost: Fraction, anywhere: bool) -> None:
    for seed, (nodes, gpus) in enumerate(CLUSTERS):
        pinned = 0.15 if seed % 2 else 0.0
        agrees(101 * BASELINES.index(name) + seed, 24, nodes, gpus, name, anywhere=anywhere, cost=cost, pinned=pinned)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", BASELINES)
def test_the_engine_agrees_on_many_more_traces(name: str) -> None:
    for seed in range(40):
        nodes, gpus = CLUSTERS[seed % 4]
        for anywhere in (False, True):
            for cost in COSTS:
                agrees(seed, 50, nodes, gpus, name, anywhere=anywhere, cost=cost, pinned=(0.0, 0.2, 0.6)[seed % 3])
