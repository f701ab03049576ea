"""Every served policy of a learned system says when the state leaves the range of its training."""

from __future__ import annotations

import pytest

from policies.api import load_policy
from policies.learned.training.systems import find_system, system_names
from tests.unit.policies.states.cluster import Job, Node, cluster

pytest.importorskip("torch", reason="systems need torch")

POLICIES = {name: find_system(name).policies for name in system_names()}
NODES = {"sched2": 15, "sched2-rule": 15}
"""Nodes of 8 GPUs; of the others 4, which all support."""


def test_every_system_has_a_policy_as_the_documents_say() -> None:
    assert all(POLICIES.values())
    served = {policy for policies in POLICIES.values() for policy in policies}
    assert served == {
        "rl-base",
        "rl-hybrid",
        "sched2",
        "sched2-rule",
        "dl2",
        "dl2-ppo",
        "marl",
        "rl-taps",
        "headway-rl",
    }


@pytest.mark.parametrize("name", sorted({policy for policies in POLICIES.values() for policy in policies}))
def test_a_job_of_three_years_is_outside(name: str) -> None:
    state = cluster([Node(8)] * NODES.get(name, 4), [Job(gpus=4, estimate_s=1e8)])
    assert "1 of 1 jobs are expected to run for 100,000,000 s" in load_policy(name).decide(state).outside
