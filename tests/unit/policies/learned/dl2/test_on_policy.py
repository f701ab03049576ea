"""PPO as an option of DL2's training: returns of jobs, advantages of actions, and the network that jobs share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.errors import TrainingError
from policies.learned.dl2.network import SHARED, DL2Network
from policies.learned.dl2.recipe import PPO, Recipe
from policies.learned.dl2.reinforcement.credit import Slot, credit_of, values_at_begin
from policies.learned.dl2.reinforcement.on_policy import OnPolicyLearning
from policies.learned.dl2.shared_network import SharedNetwork
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.supervised import smoothed
from policies.learned.dl2.system import ENVIRONMENT
from tests.unit.policies.learned.dl2.test_system import RECIPE, small_backend

COLUMNS = StateColumns(3, 2)
OURS = replace(RECIPE, algorithm=PPO, network=SHARED, gamma=0.5, smoothing=0.3)


def slot(jobs: list[tuple[int, ...]], rewards: dict[int, float]) -> Slot:
    count = len(jobs)
    return Slot(
        states=[np.zeros(COLUMNS.shape, dtype=np.float32)] * count,
        masks=[np.ones(COLUMNS.actions, dtype=np.bool_)] * count,
        actions=[0] * count,
        log_probs=[0.0] * count,
        jobs=jobs,
        rewards=rewards,
    )


def test_a_jobs_return_follows_it_from_row_to_row() -> None:
    # Job 4 ends with the first slot, so job 7 moves from row 1 to row 0.
    slots = [slot([(4, 7)], {4: 1.0, 7: 0.5}), slot([(7,)], {7: 0.5})]
    values = np.array([[0.0, 0.0, 9.0], [0.2, 9.0, 9.0]], dtype=np.float32)
    found = credit_of(slots, values, gamma=0.5, slot_lambda=1.0, step_lambda=0.5)
    assert found.returns.tolist() == [[1.0, 0.75, 0.0], [0.5, 0.0, 0.0]]
    assert found.has_job.tolist() == [[True, True, False], [True, False, False]]
    assert found.advantages == pytest.approx([1.75, 0.3])
    bootstrapped = credit_of(slots, values, gamma=0.5, slot_lambda=0.0, step_lambda=0.5)
    assert bootstrapped.returns[0] == pytest.approx([1.0, 0.6, 0.0])


def test_where_an_episode_was_cut_off_the_values_of_its_jobs_take_the_place_of_returns() -> None:
    kept, cut = slot([(4, 7)], {4: 1.0, 7: 0.1}), slot([(7,), (7,), (8,)], {})
    values = np.array([[0.0, 0.0, 9.0]], dtype=np.float32)
    after = values_at_begin(cut, np.array([[0.9, 9.0, 9.0], [0.3, 9.0, 9.0], [0.4, 9.0, 9.0]], dtype=np.float32))
    assert after == pytest.approx({7: 0.9, 8: 0.4})
    found = credit_of([kept], values, gamma=0.5, slot_lambda=0.5, step_lambda=0.5, later=after)
    assert found.returns[0] == pytest.approx([1.0, 0.55, 0.0])


def test_the_slot_in_which_an_episode_was_cut_off_counts_by_its_values_alone() -> None:
    found, columns = small_backend(), StateColumns(OURS.concurrent, 8)
    torch.manual_seed(0)
    network = DL2Network(columns, OURS.neurons, OURS.layers, kind=SHARED, value_per_job=True)
    try:
        envs = found.envs(ENVIRONMENT, 2, workers=0, concurrent=OURS.concurrent, reward="job", max_steps=20)
        learning = OnPolicyLearning(envs, network, OURS)
        episodes = learning._played([1, 2])
        credited = [learning._credited(each) for each in episodes if each.slots]
        ended = [learning._credited(replace(each, cut=None)) for each in episodes if each.slots]
    finally:
        found.close()
    assert credited
    assert all(each.cut is not None and len(each.cut.states) > 0 for each in episodes)
    for cut_off, over in zip(credited, ended, strict=True):
        assert len(cut_off["actions"]) == len(over["actions"])
        assert not np.array_equal(cut_off["returns"], over["returns"])


def test_advantages_within_a_slot_are_not_discounted() -> None:
    values = np.array([[1.0, 0, 0], [2.0, 0, 0], [1.5, 0, 0]], dtype=np.float32)
    one = slot([(5,)] * 3, {5: 3.0})
    alone = credit_of([one], values, gamma=0.9, slot_lambda=0.5, step_lambda=0.0).advantages
    assert alone == pytest.approx([1.0, -0.5, 1.5])
    assert credit_of([one], values, gamma=0.9, slot_lambda=0.5, step_lambda=1.0).advantages == pytest.approx(
        [2, 1, 1.5]
    )


def test_the_last_action_for_a_batch_of_jobs_leads_to_their_returns() -> None:
    values = np.array([[1.0, 0, 0], [2.0, 0, 0]], dtype=np.float32)
    found = credit_of([slot([(5,), (6,)], {5: 4.0, 6: 5.0})], values, gamma=0.9, slot_lambda=0.5, step_lambda=1.0)
    assert found.advantages == pytest.approx([3.0, 3.0])


def test_the_outputs_of_a_job_do_not_depend_on_its_place() -> None:
    torch.manual_seed(1)
    network = SharedNetwork(COLUMNS, 16, 3, void=True)
    jobs = torch.rand(2, *COLUMNS.shape)
    jobs[:, 2] = 0.0
    found = network(jobs.flatten(1))
    moved = network(jobs[:, [2, 0, 1]].flatten(1))
    rows = found[:, :-1].view(2, 3, 3)
    torch.testing.assert_close(moved[:, :-1].view(2, 3, 3), rows[:, [2, 0, 1]])
    torch.testing.assert_close(moved[:, -1], found[:, -1])
    assert not rows[:, 2].any()


def test_smoothing_shows_pairs_and_void_that_are_possible() -> None:
    rng = np.random.default_rng(0)
    masks = np.ones((2000, COLUMNS.actions), dtype=np.bool_)
    masks[:, 2] = False
    shown = smoothed(np.full(2000, 5), masks, 0.5, rng)
    assert set(shown.tolist()) == {5, 8, 9}
    assert np.mean(shown == 5) == pytest.approx(0.5 + 0.5 / 3, abs=0.05)
    masks[:, 2::3] = False
    assert set(smoothed(np.full(2000, 5), masks, 1.0, rng).tolist()) == {0, 1, 3, 4, 6, 7, 9}


@pytest.mark.parametrize("critic_only", [True, False])
def test_a_round_learns_values_of_jobs_and_then_the_policy(critic_only: bool) -> None:
    found, columns = small_backend(), StateColumns(OURS.concurrent, 8)
    network = DL2Network(columns, OURS.neurons, OURS.layers, kind=SHARED, value_per_job=True)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    try:
        envs = found.envs(ENVIRONMENT, OURS.envs, workers=0, concurrent=OURS.concurrent, reward="job")
        learning = OnPolicyLearning(envs, network, OURS)
        played = learning._played([1, 2])
        figures = learning.run_round([1, 2], np.random.default_rng(1), critic_only=critic_only)
    finally:
        found.close()
    # A job's parts of the rewards add up to 1, so those of an episode are its jobs.
    assert [sum(sum(of.rewards.values()) for of in episode.slots) for episode in played] == pytest.approx([5.0, 5.0])
    assert figures["updates"] > 0
    changed = {name.split(".")[0] for name, each in network.state_dict().items() if not each.equal(before[name])}
    assert changed == ({"critic"} if critic_only else {"actor", "critic"})


@pytest.mark.parametrize("setting", [{"slots": 5}, {"reward": "job"}, {"clusters": 2}, {"replay": False}])
def test_fields_of_the_memory_are_refused_with_ppo(setting: dict[str, object]) -> None:
    with pytest.raises(TrainingError, match="no effect with algorithm=ppo"):
        Recipe(algorithm=PPO, **setting)  # type: ignore[arg-type] # several types
