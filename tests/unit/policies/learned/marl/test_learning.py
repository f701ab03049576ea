"""Episodes of MARL's environment, and learning from them: from rewards, and from a rule."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

import simulator.envs  # noqa: F401 - registers the environments
from policies.learned.algorithms.distribution import Categorical
from policies.learned.marl.learning import ActorCritic, Imitation
from policies.learned.marl.network import MarlNetwork
from policies.learned.marl.playing import END, Decisions, Player, following
from policies.learned.marl.recipe import PAPER, SCORES, Recipe
from policies.learned.marl.system import ENVIRONMENT

COUNT = 3
NARROW: dict[str, Any] = {"width": 8, "encoded": 16, "hidden": 16}


def envs_of(shows: str = "types", jobs: float = 40.0) -> Any:
    return gymnasium.make_vec(
        ENVIRONMENT, COUNT, vectorization_mode="vector_entry_point", autoreset=AutoresetMode.SAME_STEP, workers=0, k=4,
        intervals=2, jobs_per_interval=jobs, shows=shows, others="contention-greedy",
    )  # fmt: skip


def made(envs: Any, **options: Any) -> tuple[MarlNetwork, Recipe]:
    torch.manual_seed(1)
    recipe = Recipe(**{**NARROW, **options})
    return MarlNetwork(envs.get_attr("layout")[0], recipe), recipe


def played(envs: Any, network: MarlNetwork, *, by_rule: bool = False) -> Decisions:
    player = Player(envs, network, with_advice=by_rule)
    return player.play([3, 4, 5], torch.Generator().manual_seed(0), np.full(COUNT, True) if by_rule else None)


def test_a_decision_is_followed_by_the_next_of_its_scheduler() -> None:
    assert following([0, 0, 1, 0, 1]).tolist() == [1, 3, 4, END, END]


@pytest.mark.parametrize(("form", "shows"), [(PAPER, "jobs"), (SCORES, "types")])
def test_episodes_side_by_side_are_those_of_each_alone(form: str, shows: str) -> None:
    """The network's values are those that it gives for the whole state; every decision has a reward."""
    envs = envs_of(shows)
    network, _ = made(envs, network=form, shared=form == SCORES)
    found = played(envs, network)
    assert len(found.rewards) == len(found) > 30
    assert (found.rewards > 0).any() and (found.rewards <= 1).all()
    assert found.masks[np.arange(len(found)), found.actions].all()
    same = found.following != END
    assert (found.acting[same] == found.acting[found.following[same]]).all()
    env = gymnasium.make(ENVIRONMENT, k=4, intervals=2, jobs_per_interval=40.0, shows=shows).unwrapped
    seen, _ = env.reset(seed=3)
    for row in range(20):
        with torch.inference_mode():
            _, value = network({name: torch.from_numpy(cells[None]) for name, cells in seen.items()})
        assert float(value) == pytest.approx(float(found.values[row]), abs=1e-5)
        seen, *_ = env.step(np.int64(found.actions[row]))


def test_the_rule_acts_where_it_is_asked_to() -> None:
    envs = envs_of()
    found = played(envs, made(envs)[0], by_rule=True)
    assert (found.actions == found.advice.argmin(1)).all()
    assert np.isfinite(found.advice[np.arange(len(found)), found.actions]).all()


def test_imitation_finds_what_the_rule_prefers() -> None:
    envs = envs_of()
    network, recipe = made(envs, imitation_updates=40, imitation_rounds=3)
    imitation, rng = Imitation(network, recipe), np.random.default_rng(0)
    data = played(envs, network, by_rule=True)
    first, *_, last = [imitation.update(data, rng, number) for number in range(3)]
    assert last["loss"] < first["loss"]
    assert last["agreement"] > max(first["agreement"], 0.5)


def test_equal_seeds_give_equal_weights() -> None:
    weights = []
    for _ in range(2):
        envs = envs_of()
        network, recipe = made(envs, learning_rate=1e-3)
        learner = ActorCritic(network, torch.optim.Adam(network.parameters(), 1e-3), recipe)
        losses = learner.update(played(envs, network), np.random.default_rng(0))
        assert set(losses) == {"policy_loss", "value_loss", "entropy"}
        weights.append(torch.cat([each.detach().flatten() for each in network.parameters()]))
    assert torch.equal(*weights)


def test_learning_prefers_actions_with_more_reward() -> None:
    """Reward 1 for the first possible action, 0 for others; the network of the paper, which knows the order of groups."""
    envs = envs_of("jobs")
    network, recipe = made(envs, network=PAPER, gamma=0.0)
    learner = ActorCritic(network, torch.optim.Adam(network.parameters(), 1e-2), recipe)
    data = played(envs, network)
    first = data.masks.argmax(1)
    data.rewards[:] = data.actions == first

    def chance() -> float:
        with torch.no_grad():
            logits, _ = network.decide(*data.rows(np.arange(len(data))))
            distribution = Categorical(logits, torch.from_numpy(data.masks))
            return float(distribution.log_prob(torch.from_numpy(first)).exp().mean())

    before, rng = chance(), np.random.default_rng(0)
    for _ in range(15):
        learner.update(data, rng)
    assert before < 0.4
    assert chance() > 1.5 * before
