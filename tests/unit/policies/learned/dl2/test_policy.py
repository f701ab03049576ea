"""The agent in service on a cluster: what it sees there is what its environment shows, and its decisions are valid."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.api import Decision
from policies.errors import WeightsError
from policies.learned.dl2.policy import ALL_REDUCE, SOURCE, STARTED, Dl2, Dl2Ppo, source_of
from policies.learned.dl2.slot_state import MODELS, SlotState, epochs_left
from policies.learned.dl2.state_columns import StateColumns
from policies.learned.dl2.system import ENCODER
from policies.learned.weights import weights
from policies.model import ClusterState, JobState
from simulator.agents.episodes import make
from simulator.traces.generators import dl2
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.policies.states.valid import check_resizing
from tests.unit.simulator.envs.worlds import trace_of

COLUMNS = StateColumns(4, 8)


def elastic(*jobs: Job) -> ClusterState:
    return cluster([Node(4), Node(4)], list(jobs))


def slot(state: ClusterState) -> SlotState:
    low, high = (column.tolist() for column in state.jobs.sizes)
    found = SlotState(state, COLUMNS, 1200.0, low, high)
    found.free = 8
    return found


def test_the_models_are_those_of_the_workload() -> None:
    assert MODELS == dl2.MODELS


def test_the_state_is_that_of_the_environment() -> None:
    # given the same two all-reduce jobs in the environment and on a cluster, the first with two workers
    trace = trace_of(
        (0, 1, 9000),
        (0, 2, 9000),
        min_gpus=[1, 1],
        max_gpus=[4, 3],
        extra={"num_ps": ["0", "0"], "epochs": ["20", "30"]},
    )
    env = make("headway/ElasticAllocation-v0", traces=[trace], cluster="2x4", concurrent=4)
    env.reset(seed=0)
    env.step(np.int64(0))
    seen, *_ = env.step(np.int64(0))
    state = elastic(Job(gpus=1, sizes=(1, 4), training=(20.0, 0.0)), Job(gpus=2, sizes=(1, 3), training=(30.0, 0.0)))
    here = slot(state)
    here.give(0)
    here.give(0)
    shown, mask = here.show([0, 1])
    # then both show the same
    np.testing.assert_allclose(shown, seen)
    np.testing.assert_array_equal(mask, env.get_wrapper_attr("action_masks")())


def test_epochs_left_follow_from_progress_else_from_time() -> None:
    state = elastic(
        Job(training=(20.0, 0.25)),
        Job(training=(20.0, math.nan), estimate_s=100.0, service_s=50.0),
        Job(training=(math.nan, 0.5)),
        Job(training=(math.nan, math.nan)),
    )
    assert epochs_left(state).tolist() == [15.0, 10.0, 50.0, 100.0]


def test_the_first_task_is_the_minimum_and_no_job_has_more_than_its_maximum() -> None:
    here = slot(elastic(Job(gpus=2, sizes=(2, 3)), Job(gpus=7, sizes=(7, 8))))
    here.give(0)
    assert (here.sizes, here.free) == ({0: 2}, 6)
    _, mask = here.show([0, 1])
    assert np.flatnonzero(mask).tolist() == [0, COLUMNS.actions - 1]
    here.give(0)
    assert np.flatnonzero(here.show([0, 1])[1]).tolist() == [COLUMNS.actions - 1]


@pytest.mark.parametrize("made", [Dl2, Dl2Ppo])
@pytest.mark.parametrize("jobs", [1, 3, 50])
def test_decisions_are_valid_and_repeatable(jobs: int, made: type[Dl2] | type[Dl2Ppo]) -> None:
    rng = np.random.default_rng(jobs)
    state = cluster(
        [Node(4)] * 4,
        [Job(gpus=2, sizes=(1, int(rng.integers(2, 9))), training=(20.0, float(rng.random()))) for _ in range(jobs)],
    )
    policy = made()
    decision = policy.decide(state)
    assert decision.allocation
    assert decision == policy.decide(state)
    check_resizing(policy, state, settled=lambda _: True)


def test_running_jobs_keep_their_size_for_a_slot() -> None:
    young = elastic(Job(gpus=2, sizes=(1, 8), occupied={0: 2}), Job(gpus=2, sizes=(1, 8)))
    assert int(young.jobs.state[0]) == JobState.RUNNING
    decision = Dl2(round_s=1200.0).decide(young)
    assert decision.allocation[0] == young.jobs.placement(0)


def test_weights_are_checked(tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        Dl2(weights=str(tmp_path))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    "size", [{"neurons": 10**300}, {"neurons": 10**12}, {"concurrent": 10**300}, {"layers": "two"}]
)
def test_a_card_with_sizes_that_no_network_has_is_refused(tmp_path: Path, size: dict[str, int | str]) -> None:
    arrays, card = weights.load(weights.pretrained(), ALL_REDUCE, system="dl2", encoder=ENCODER)
    weights.save(tmp_path / "best", "dl2", arrays, replace(card, recipe={**card.recipe, **size}))
    with pytest.raises(WeightsError, match="does not describe a network"):
        Dl2(weights=str(tmp_path))


@pytest.mark.parametrize(("policy", "name", "shipped"), [(Dl2, "dl2", ALL_REDUCE), (Dl2Ppo, "dl2-ppo", "dl2-ppo")])
def test_each_policy_loads_its_own_weights(
    policy: type[Dl2] | type[Dl2Ppo], name: str, shipped: str, tmp_path: Path
) -> None:
    """Those that come with Headway, and those of a training of its own system only; its remarks name the range of these."""
    arrays, card = weights.load(weights.pretrained(), shipped, system=name, encoder=ENCODER)
    made = policy()
    assert made.spec.name == name
    actor = made._served[0]._network.actor.state_dict()  # type: ignore[attr-defined]
    assert all(np.array_equal(tensor, arrays[f"actor.{key}"]) for key, tensor in actor.items())
    assert made.decide(elastic(Job(gpus=5, sizes=(1, 8)))).outside.startswith("1 of 1 jobs request 5 GPUs")
    assert made._served[2] == card.trained_range
    weights.save(tmp_path / "best", name, arrays, card)
    assert policy(weights=str(tmp_path)).spec == made.spec
    other = "dl2" if name == "dl2-ppo" else "dl2-ppo"
    weights.save(tmp_path / "others" / "best", name, arrays, replace(card, system=other))
    with pytest.raises(WeightsError, match=f"weights of {other}, not of {name}"):
        policy(weights=str(tmp_path / "others"))


def test_the_guard_of_dl2_ppo_starts_an_overdue_job() -> None:
    state = elastic(*(Job(gpus=2, estimate_s=10.0) for _ in range(3)))
    idle = Decision({})
    made, alone = Dl2Ppo(), Dl2Ppo(guard=False)
    for policy in (made, alone):
        policy._resizer.decide = lambda *_: idle  # type: ignore[method-assign]
    assert set(made.decide(state).allocation) == {0, 1, 2}
    assert not alone.decide(state).allocation


def test_the_paper_is_the_source_only_of_weights_whose_policy_network_reinforcement_learning_changed() -> None:
    _, card = weights.load(weights.pretrained(), ALL_REDUCE, system="dl2", encoder=ENCODER)
    assert Dl2().spec.source == source_of(card)
    assert source_of(card).startswith("the supervised phase alone of DL2") and "imitates DRF" in source_of(card)
    # In the first two rounds, only the value network learns.
    assert source_of(replace(card, recipe={**card.recipe, "rounds": 2})) == source_of(card)
    assert source_of(replace(card, recipe={**card.recipe, "rounds": 3})) == SOURCE
    assert source_of(replace(card, recipe={**card.recipe, "value_baseline": False})) == SOURCE
    assert source_of(replace(card, recipe={**card.recipe, "rounds": 0, "value_baseline": False})) != SOURCE


def test_the_round_of_the_weights_decides_about_the_source_and_not_the_length_of_the_training() -> None:
    _, card = weights.load(weights.pretrained(), ALL_REDUCE, system="dl2", encoder=ENCODER)
    longer = replace(card, recipe={**card.recipe, "rounds": 8, "teacher": "fifo"})

    def source(done: int, **recipe: str) -> str:
        results = {**card.results, "round": done, "last_round": 8}
        return source_of(replace(longer, recipe={**longer.recipe, **recipe}, results=results))

    assert "imitates FIFO" in source(0) and source(2) == source(0)
    assert source(3) == SOURCE
    # Nothing says how the policy network was made that such a training began with.
    assert source(2, start="other") == STARTED
    assert source(3, start="other") == SOURCE
    assert "imitates tetris:elastic=true" in source(0, teacher="tetris:elastic=true")
