"""A copy of the weights learns from live decisions; the weights in service never change by it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.learned.dl2.division import Step
from policies.learned.dl2.learning.feedback import network_copy
from policies.learned.dl2.learning.feedback.feedback import Feedback
from policies.learned.dl2.learning.feedback.network_copy import FEEDBACK_UPDATES
from policies.learned.dl2.learning.service import Weights
from policies.learned.dl2.policy import SOURCE, SUPERVISED, Dl2, source_of
from policies.learned.dl2.slot_state import SlotState
from policies.learned.dl2.system import trained_network
from policies.model import ClusterState
from tests.unit.policies.learned.dl2.learning.test_service import service
from tests.unit.policies.states.cluster import Job, Node, cluster

SLOT_S = 100.0


@pytest.fixture
def weights(tmp_path: Path) -> Iterator[Weights]:
    torch.manual_seed(3)
    yield service(tmp_path).load()


def state(number: int, share: float, gpus: int = 1) -> ClusterState:
    time_s = 1000.0 + SLOT_S * number
    job = Job(occupied={0: gpus}, sizes=(1, 8), training=(20.0, share), service_s=time_s)
    return cluster([Node(8)], [job], time_s=time_s, sequence=number)


def shown(weights: Weights, where: ClusterState, size: int) -> tuple[np.ndarray, np.ndarray]:
    """State and mask when the job of the cluster has that many GPUs in the slot."""
    slot = SlotState(where, weights.columns, SLOT_S, [1], [8])
    slot.free = 8
    for _ in range(size):
        slot.give(0)
    return slot.show([0])


def play(feedback: Feedback, weights: Weights, slots: int) -> float:
    """Play slots in which the job gets one GPU or two, and trains only with two; return the probability of the second one."""
    share, rng, void = 0.0, np.random.default_rng(5), weights.columns.actions - 1
    for number in range(slots):
        where = state(number, share)
        two = bool(rng.integers(2))
        share += 0.5 / slots if two else 0.0
        taken = [Step(*shown(weights, where, 0), 0), Step(*shown(weights, where, 1), 0 if two else void)]
        feedback.see(where, tuple(taken))
    return probability(feedback, weights)


def probability(feedback: Feedback, weights: Weights) -> float:
    seen, mask = shown(weights, state(1, 0.2), 1)
    with torch.inference_mode():
        logits = feedback.copy._network.logits(torch.from_numpy(seen[None]))[0]
        return float(logits.masked_fill(~torch.from_numpy(mask), -torch.inf).softmax(0)[0])


def tensors(weights: Weights) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in weights.network.state_dict().items()}


def test_the_copy_learns_what_was_rewarded_and_the_weights_in_service_stay(
    weights: Weights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_copy, "CRITIC_UPDATES", 5)
    before = tensors(weights)
    feedback = Feedback(SLOT_S, weights)
    # Rewards of a test are large, so that few updates show what they do.
    first = probability(feedback, weights)
    learned = play(feedback, weights, 400)
    assert len(feedback.memory) == 2 * 399
    assert feedback.updates == 400 - 16  # one for each slot since the memory has had 32 samples
    assert feedback.meter.total == pytest.approx(0.25, abs=0.05)
    assert learned > first
    for name, tensor in tensors(weights).items():
        assert (tensor == before[name]).all()


def test_only_the_value_network_learns_at_first_and_a_candidate_says_what_it_learned(
    weights: Weights, tmp_path: Path
) -> None:
    feedback = Feedback(SLOT_S, weights)
    first = probability(feedback, weights)
    assert play(feedback, weights, 15 + network_copy.CRITIC_UPDATES) == first
    assert not feedback.copy.has_changed
    assert source_of(weights.card) == SUPERVISED.format(teacher="DRF")
    feedback.see(state(1000, 0.5), ())
    play_on = state(1001, 0.5)
    feedback.see(play_on, (Step(*shown(weights, play_on, 0), 0),))
    assert feedback.copy.has_changed
    feedback.save_candidate(tmp_path / "new" / "best")
    assert not feedback.copy.has_changed
    network, columns, card = trained_network(str(tmp_path / "new"))
    assert (columns, card.recipe[FEEDBACK_UPDATES]) == (weights.columns, feedback.copy.policy_updates)
    assert source_of(card) == SOURCE
    assert any(
        (tensor.numpy() != tensors(weights)[name]).any()
        for name, tensor in network.state_dict().items()
        if name.startswith("actor.")
    )


def test_a_hypothetical_state_is_not_noted(weights: Weights) -> None:
    feedback = Feedback(SLOT_S, weights)
    real = state(1, 0.1)
    step = (Step(*shown(weights, real, 0), 0),)
    feedback.see(real, step)
    # The controller asks about copies of the present state in which a running job was stopped.
    feedback.see(cluster([Node(8)], [Job(sizes=(1, 8))], time_s=real.time_s), step * 3)
    feedback.see(state(2, 0.2), step)
    assert len(feedback.memory) == 1


def test_a_copy_that_diverges_begins_anew(weights: Weights, monkeypatch: pytest.MonkeyPatch) -> None:
    feedback = Feedback(SLOT_S, weights)
    copy = feedback.copy
    with torch.no_grad():
        next(copy._network.critic.parameters()).fill_(float("nan"))
    play(feedback, weights, 140)
    assert feedback.copy is not copy
    assert feedback.copy.updates < feedback.updates


def test_the_policy_gives_its_actions_but_none_where_a_rule_decided() -> None:
    policy = Dl2(guard=False)
    decision, steps = policy._decide(state(20, 0.1))  # later than a slot after the job's start
    assert decision.allocation
    assert steps
    assert {step.action for step in steps} <= {0, policy._served[1].actions - 1}
