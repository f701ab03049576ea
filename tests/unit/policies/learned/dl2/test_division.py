"""Divisions of the GPUs by the agent in one decision: again where a job finds no placement, and not without end."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from policies.learned.dl2 import division
from policies.learned.dl2.division import MOST_INFERENCES, AgentShares
from policies.learned.dl2.policy import Dl2
from policies.learned.dl2.serving import Served
from policies.learned.dl2.state_columns import StateColumns
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster

COLUMNS = StateColumns(3, 8)


def first_possible(states: Tensor, masks: Tensor) -> Tensor:
    """An agent that gives all that it can to the first job, then to the next."""
    return torch.where(masks, 1.0, 0.0) * torch.arange(masks.shape[1], 0, -1)


def shares_of(state: ClusterState) -> AgentShares:
    return AgentShares(first_possible, COLUMNS, state, 1200.0)


def test_a_further_division_is_as_if_it_were_the_first() -> None:
    draw = random.Random(1)
    for _ in range(40):
        jobs = [Job(gpus=2, sizes=(draw.randint(1, 2), draw.randint(2, 6))) for _ in range(10)]
        state = cluster([Node(8)] * 3, jobs)
        order = list(range(10))
        again = shares_of(state)
        again(order, 24)
        alone = 0
        while order:
            order.remove(draw.choice(order))
            fresh, gpus = shares_of(state), draw.randint(12, 24)
            assert again(order, gpus) == fresh(order, gpus)
            alone += fresh.inferences
        assert again.inferences < alone + 24


def test_batches_that_are_as_before_are_not_asked_again() -> None:
    shares = shares_of(cluster([Node(8)] * 3, [Job(gpus=2, sizes=(1, 3)) for _ in range(10)]))
    shares(range(10), 24)
    before = shares.inferences
    shares([0, 1, 2, 3, 4, 5, 6, 9], 24)  # a job of the third batch found no placement
    assert shares.inferences == before + 6


def test_after_too_many_inferences_others_get_what_a_job_without_placement_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(division, "MOST_INFERENCES", 1)
    sizes = [(1, 8), (1, 8), (1, 8), (9, 9), (3, 6), (1, 6)]
    shares = shares_of(cluster([Node(8)] * 3, [Job(gpus=least, sizes=(least, most)) for least, most in sizes]))
    assert shares(range(6), 24) == {0: 8, 1: 8, 2: 8}
    asked = shares.inferences
    # Job 1 finds no placement: the others keep their sizes, and the next jobs that fit get what they ask for
    assert shares([0, 2, 3, 4, 5], 24) == {0: 8, 2: 8, 4: 3, 5: 1}
    # Then a job that stays as it is takes GPUs away: no more are given than there are
    assert shares([2, 3, 4, 5], 10) == {2: 8, 5: 1}
    assert shares.inferences == asked


def test_many_jobs_that_find_no_placement_do_not_take_a_decision_beyond_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given 768 GPUs and 80 elastic jobs, for which a division takes 768 inferences, and 22 jobs without a placement one by one
    state = cluster([Node(8)] * 96, [Job(gpus=8, max_nodes=16, sizes=(1, 16)) for _ in range(80)])
    inferences = 0
    served = Served.__call__

    def counted(self: Served, *arguments: Any) -> Tensor:
        nonlocal inferences
        inferences += 1
        return served(self, *arguments)

    monkeypatch.setattr(Served, "__call__", counted)
    # When the agent decides
    decision = Dl2(guard=False).decide(state)
    # Then it is asked a bounded number of times, and most GPUs are used
    assert 768 < inferences < MOST_INFERENCES + 768
    assert sum(placement.num_gpus for placement in decision.allocation.values()) > 700
