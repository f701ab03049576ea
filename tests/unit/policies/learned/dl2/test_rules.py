"""Rules of DL2's phases: teachers, job-aware exploration, the samples of a slot."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import simulator.envs  # noqa: F401 - registers the environments
from policies.errors import TrainingError
from policies.learned.dl2.recipe import Recipe
from policies.learned.dl2.reinforcement.exploration import explored, mended
from policies.learned.dl2.reinforcement.slots import _Slot
from policies.learned.dl2.state_columns import BOTH, SERVER, WORKER, StateColumns, States
from policies.learned.dl2.teachers import actions_of
from policies.learned.dl2.without_bundle import ServedWithoutBundle
from simulator.agents.episodes import steps
from simulator.papers.dl2.rules.baselines import DRF
from simulator.traces.generators.dl2 import DL2

COLUMNS = StateColumns(3, 8)


def state(*jobs: tuple[float, float, int, int]) -> States:
    """Jobs as (epochs left, share, workers, servers)."""
    found = np.zeros((1, *COLUMNS.shape), dtype=np.float32)
    for row, values in enumerate(jobs):
        found[0, row, COLUMNS.epochs :] = values
    return found


def all_but(*impossible: int) -> Any:
    masks = np.ones((1, COLUMNS.actions), dtype=np.bool_)
    masks[0, list(impossible)] = False
    return masks


def action(row: int, kind: int) -> int:
    return 3 * row + kind


@pytest.mark.parametrize(("teacher", "row"), [("drf", 2), ("fifo", 0), ("srtf", 1)])
def test_each_teacher_has_its_order(teacher: str, row: int) -> None:
    seen = state((30, 0.2, 2, 2), (10, 0.3, 3, 3), (20, 0.1, 1, 1))
    assert actions_of(teacher, COLUMNS, seen, all_but()) == [action(row, BOTH)]


def test_a_teacher_passes_over_jobs_that_can_have_no_pair() -> None:
    seen = state((30, 0.1, 1, 1), (10, 0.2, 2, 2), (20, 0.3, 3, 3))
    assert actions_of("drf", COLUMNS, seen, all_but(action(0, BOTH))) == [action(1, BOTH)]
    without = all_but(*(action(row, BOTH) for row in range(3)))
    assert actions_of("drf", COLUMNS, seen, without) == [COLUMNS.actions - 1]


def test_where_no_job_can_have_servers_all_get_workers_alone() -> None:
    seen = state((30, 0.2, 1, 0), (10, 0.1, 0, 0), (20, 0.3, 2, 0))
    rings = all_but(*(action(row, kind) for row in range(3) for kind in (SERVER, BOTH)))
    assert actions_of("drf", COLUMNS, seen, rings) == [action(1, WORKER)]
    # A job that has servers shows that others wait for the room of a server.
    served = state((30, 0.2, 1, 1), (10, 0.1, 0, 0), (20, 0.3, 2, 0))
    assert actions_of("drf", COLUMNS, served, rings) == [COLUMNS.actions - 1]


def test_a_job_without_servers_gets_a_worker_alone() -> None:
    seen = state((30, 0.1, 1, 0), (10, 0.2, 2, 2), (20, 0.3, 3, 3))
    assert actions_of("drf", COLUMNS, seen, all_but(action(0, SERVER), action(0, BOTH))) == [action(0, WORKER)]


def test_a_job_grows_only_to_what_jobs_request() -> None:
    seen = state((30, 0.4, 4, 4), (10, 0.2, 2, 2), (0, 0, 0, 0))
    no_task = [action(2, kind) for kind in (WORKER, SERVER, BOTH)]
    assert actions_of("fifo", COLUMNS, seen, all_but(*no_task)) == [action(1, BOTH)]
    assert actions_of("fifo", COLUMNS, seen, all_but(*no_task), workers=5) == [action(0, BOTH)]
    assert actions_of("fifo", COLUMNS, seen, all_but(*no_task), workers=2) == [COLUMNS.actions - 1]


@pytest.mark.parametrize("bundle", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_drf_as_a_teacher_acts_as_the_baseline(seed: int, bundle: bool) -> None:
    traces = DL2(jobs=60, mean_gap_s=60.0)
    env = gymnasium.make("headway/ElasticAllocation-v0", traces=traces, cluster="4x8", bundle=bundle)
    found = list(steps(env, DRF(), seed))
    env.close()
    seen, masks = np.stack([each.observation for each in found]), np.array([each.mask for each in found])
    assert len(found) > 500
    columns = StateColumns(seen.shape[1], seen.shape[2] - 5)
    assert actions_of("drf", columns, seen, masks, bundle=bundle).tolist() == [each.action for each in found]


def test_without_the_bundle_action_a_pair_is_a_server_and_then_a_worker() -> None:
    no_pairs = [action(row, BOTH) for row in range(3)]
    for tasks, kind in (((0, 0), SERVER), ((0, 1), WORKER), ((3, 3), SERVER), ((3, 4), WORKER)):
        seen = state((30, 0.1, *tasks), (10, 0.2, 4, 4), (20, 0.3, 4, 4))
        assert actions_of("fifo", COLUMNS, seen, all_but(*no_pairs), bundle=False) == [action(0, kind)]
    full = state((30, 0.1, 4, 4), (10, 0.2, 4, 4), (20, 0.3, 4, 4))
    assert actions_of("fifo", COLUMNS, full, all_but(*no_pairs), bundle=False) == [COLUMNS.actions - 1]
    alone = all_but(*no_pairs, action(0, SERVER))
    assert actions_of("fifo", COLUMNS, state((30, 0.1, 1, 0)), alone, bundle=False) == [action(0, WORKER)]


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ((2, 0), action(1, SERVER)),
        ((0, 2), action(1, WORKER)),
        ((11, 1), action(1, SERVER)),
        ((1, 11), action(1, WORKER)),
        ((10, 1), -1),
        ((1, 0), -1),
        ((0, 1), -1),
    ],
)
def test_the_three_poor_states(tasks: tuple[int, int], expected: int) -> None:
    seen = state((30, 0.1, 3, 3), (10, 0.2, *tasks), (20, 0.3, 4, 1))
    assert mended(COLUMNS, seen, all_but(), ratio=10.0) == [expected]


def test_impossible_actions_do_not_leave_a_poor_state() -> None:
    seen = state((30, 0.1, 3, 0), (10, 0.2, 5, 0), (0, 0, 0, 0))
    assert mended(COLUMNS, seen, all_but(action(0, SERVER)), ratio=10.0) == [action(1, SERVER)]


def test_exploration_replaces_its_share_of_actions_in_poor_states_only() -> None:
    actions, instead = np.zeros(10_000, dtype=np.int64), np.full(10_000, 7)
    instead[5_000:] = -1
    found = explored(actions, instead, 0.4, np.random.default_rng(1))
    assert (found[:5_000] == 7).mean() == pytest.approx(0.4, abs=0.03)
    assert not found[5_000:].any()


def test_every_sample_of_a_slot_has_its_reward_and_the_next_slots_state() -> None:
    slot = _Slot()
    for number in range(3):
        slot.add(state((number, 0, 0, 0))[0], number, all_but()[0])
    rows = slot.rows(0.5, state((9, 0, 0, 0))[0], terminated=False)
    assert rows["rewards"].tolist() == [0.5] * 3
    assert rows["seen"][:, 0, COLUMNS.epochs].tolist() == [0, 1, 2]
    assert rows["next_seen"][:, 0, COLUMNS.epochs].tolist() == [9] * 3
    assert rows["actions"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("tasks", "masked", "possible"),
    [
        ((0, 0), (), {action(0, SERVER), action(1, SERVER), action(2, SERVER)}),
        ((0, 2), (), {action(0, WORKER)}),
        ((0, 0), (action(0, SERVER),), {action(0, WORKER), action(1, SERVER), action(2, SERVER)}),
        ((1, 1), (), {action(row, kind) for row in range(3) for kind in (WORKER, SERVER)} | {COLUMNS.actions - 1}),
    ],
)
def test_without_the_bundle_action_the_first_pair_is_completed(
    tasks: tuple[int, int], masked: tuple[int, ...], possible: set[int]
) -> None:
    masks = torch.from_numpy(all_but(*masked, *(action(row, BOTH) for row in range(3))))
    served = ServedWithoutBundle(lambda _states, masks: torch.zeros(masks.shape), COLUMNS)
    logits = served(torch.from_numpy(state((30, 0.1, *tasks), (10, 0.2, 0, 0), (20, 0.3, 0, 0))), masks)
    assert {*np.flatnonzero((logits[0] == 0).numpy() & masks[0].numpy()).tolist()} == possible


def test_the_weight_of_the_entropy_falls_from_the_middle_of_the_rounds_on() -> None:
    recipe = Recipe(rounds=4, entropy_weight=0.1, entropy_decay=0.01)
    assert [recipe.entropy_weight_in(number) for number in range(4)] == pytest.approx([0.1, 0.1, 0.01, 0.001])
    constant = Recipe(entropy_weight=0.1, entropy_decay=1.0)
    assert {constant.entropy_weight_in(number) for number in range(constant.rounds)} == {0.1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"teacher": "srsf", "supervised_samples": 50},
        {"loss": "hinge"},
        {"gamma": 1.1},
        {"rounds": 0, "supervised_rounds": 0},
        {"supervised_rounds": -1},
    ],
)
def test_a_recipe_refuses_impossible_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(TrainingError, match=next(iter(wrong))):
        Recipe(**wrong)
