"""The agent in service on a cluster: what it sees there is what its environment shows, and its decisions are valid."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.api import Forkable
from policies.errors import EncoderError
from policies.learned.rl_taps.cluster_image import Slots, image_of, left_of
from policies.learned.rl_taps.image_columns import PAPER
from policies.learned.rl_taps.policy import RlTaps
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.states.valid import check_resizing


def state_of(*jobs: Job) -> ClusterState:
    return cluster([Node(4)] * 8, list(jobs))


def acting(action: np.ndarray) -> RlTaps:
    """Return the policy with an agent that always does this."""
    found = RlTaps(round_s=10.0)
    logits = torch.nn.functional.one_hot(torch.from_numpy(action), 11).float()[None]
    found._network.logits = lambda _images: logits  # type: ignore[method-assign]
    return found


def of(**gpus: list[int]) -> np.ndarray:
    """Return the action that gives these GPUs to slots (s1=[0, 1])."""
    action = np.zeros(32, dtype=np.int64)
    for slot, mine in gpus.items():
        action[mine] = int(slot[1:])
    return action


def test_the_image_shows_gpus_slots_and_backlog() -> None:
    jobs = [
        Job(gpus=2, occupied={1: 2}, estimate_s=50.0, service_s=20.0),
        *(Job(gpus=20, estimate_s=990.0) for _ in range(12)),
    ]
    state = state_of(*jobs)
    slots = Slots(10)
    rows = slots.fill(state)
    assert rows == list(range(10))
    image = image_of(state, PAPER, slots, rows, 10.0)
    assert image[:, [4, 5]].tolist() == [[1, 1]] * 3 + [[0, 0]] * 7
    assert image[:, :32].sum() == 6
    # Three rows of two GPUs; then ten rows of twelve, the most that a slot shows.
    assert image[:, 32:44].sum() == 6
    assert image[:, 44:56].all()
    assert image[:, PAPER.first_of_backlog :].sum() == 3


def test_a_job_keeps_its_slot_and_the_gpus_that_the_agent_knows() -> None:
    one, two = Job(gpus=1, occupied={0: 1}), Job(gpus=1, occupied={0: 1})
    slots = Slots(10)
    before = state_of(one, two)
    slots.fill(before)
    slots.note(of(s1=[2], s2=[3]))
    image = image_of(before, PAPER, slots, [0, 1], 10.0)
    assert image[0, :4].tolist() == [0, 0, 1, 2]
    twin = slots.copy()
    names = before.jobs.ids
    after = cluster([Node(4)] * 8, [two, Job(gpus=1)])
    assert after.jobs.ids == names, "the second state has jobs of the same names"
    assert twin.fill(after) == slots.fill(after)


def test_unknown_durations_fill_all_rows() -> None:
    assert np.isinf(left_of(state_of(Job(estimate_s=float("nan")))))[0]


def test_elastic_jobs_get_what_the_agent_gives_on_its_nodes() -> None:
    state = state_of(Job(gpus=4, sizes=(1, 8)), Job(gpus=2, sizes=(1, 3)), Job(gpus=6))
    policy = acting(of(s1=[4, 5, 8, 9, 10], s2=[12, 13, 14, 15], s3=[31]))
    check_resizing(policy, state, settled=lambda _row: True)
    decision = policy.decide(state)
    assert dict(decision.allocation[0].items()) == {1: 2, 2: 3}
    assert decision.allocation[1].num_gpus == 3
    assert decision.allocation[2].num_gpus == 6
    assert isinstance(policy, Forkable)
    assert policy.fork().decide(state) == decision


def test_an_agent_that_gives_nothing_leaves_no_cluster_idle() -> None:
    decision = acting(of()).decide(state_of(Job(gpus=40), Job(gpus=3)))
    assert {row: each.num_gpus for row, each in decision.allocation.items()} == {1: 3}


def test_running_jobs_without_a_slot_keep_what_they_have() -> None:
    jobs = [Job(gpus=1, occupied={row // 4: 1}, preemptible=True) for row in range(12)]
    state = state_of(*jobs)
    decision = acting(of(s1=[31])).decide(state)
    assert {0, 10, 11} <= set(decision.allocation)


def test_another_cluster_is_refused() -> None:
    with pytest.raises(EncoderError, match="32"):
        RlTaps().decide(cluster([Node(4)] * 4, [Job()]))
