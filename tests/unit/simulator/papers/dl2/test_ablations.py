"""The options of DL2's environment that its ablations need, by hand-computed examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from policies.api import Decision
from policies.model import Placement
from simulator.agents.episodes import play as play_agent
from simulator.agents.policy_agent import PolicyAgent
from simulator.errors import SettingError, TraceError
from simulator.papers.dl2.env import ElasticAllocationEnv
from simulator.papers.dl2.perturbation import perturbed
from simulator.papers.dl2.servers import SpeedLaw, believed_step_s, units
from simulator.traces.generators.dl2 import DL2, MODELS, generate
from simulator.traces.trace import Trace
from tests.unit.simulator.agents.test_demonstrations import Whole
from tests.unit.simulator.papers.dl2.test_env import FREE, both, elastic, play, random_agent, server, void, worker


def made(trace: Trace, **options: Any) -> ElasticAllocationEnv:
    """Make an environment in which jobs have speed 1 at the size asked for, and begin its episode."""
    given: dict[str, Any] = {"traces": [trace], "cluster": "1x9", "speeds": "analytical", "settings": FREE}
    env = ElasticAllocationEnv(**given | {"concurrent": 8} | options)
    env.reset()
    return env


def run_slot(env: ElasticAllocationEnv, *actions: int) -> tuple[np.ndarray[Any, Any], float, dict[str, Any]]:
    """Take the actions, then void; return the state, the reward and the info at the end of the slot."""
    for action in actions:
        assert not env.step(np.int64(action))[4]["slot_ended"]
    seen, reward, _, _, info = env.step(np.int64(void(env)))
    assert info["slot_ended"]
    return seen, reward, info


def bundles(env: ElasticAllocationEnv) -> list[int]:
    """Give a worker and a server to each job of the batch."""
    return [both(row) for row in range(len(env.shown.batch))]


def test_without_the_bundle_action_workers_and_servers_are_given_one_by_one() -> None:
    env = made(elastic((0, 2, 2400)), bundle=False, concurrent=2)
    assert np.flatnonzero(env.action_masks()).tolist() == [worker(0), server(0), void(env)]
    _, reward, _ = run_slot(env, worker(0), server(0), server(0), worker(0))
    assert reward == 0.5
    assert not env.action_masks()[both(0)]


def test_a_decision_becomes_servers_and_workers_in_turn_without_the_bundle_action() -> None:
    env = made(elastic((0, 1, 600)), bundle=False)
    mapping = env.decision_mapping()
    mapping.begin(Decision({0: Placement((0,), (2,))}))
    taken = []
    for _ in range(5):
        taken.append(mapping.next().action)
        env.step(np.int64(taken[-1]))
    assert taken == [server(0), worker(0), server(0), worker(0), void(env)]


@pytest.mark.parametrize(("reward", "rewards"), [("slot", [1.5] * 4), ("job", [0.5, 1.0, 0.5, 0.0])])
def test_the_reward_of_an_action_is_the_slots_or_that_of_its_job(reward: str, rewards: list[float]) -> None:
    env = made(elastic((0, 2, 2400), (0, 1, 1200)), reward=reward)
    _, total, info = run_slot(env, both(0), both(1), both(0))
    assert (total, info["action_rewards"]) == (1.5, rewards)
    # The second slot begins anew: half of the first job, in one batch
    _, total, info = run_slot(env, both(0), both(0))
    assert (total, info["action_rewards"]) == (0.5, [0.5, 0.5, 0.0 if reward == "job" else 0.5])


def test_stated_epochs_differ_from_those_that_a_job_trains_by_the_error() -> None:
    env = made(elastic(*[(0, 1, 4800)] * 8, extra={"epochs": ["8"] * 8}), epoch_error=0.5)
    more = env.perturbation.per_stated_epoch > 1
    assert {*env.perturbation.per_stated_epoch} == {0.5, 1.5}
    # v (1 + 0.5) = 8 or v (1 - 0.5) = 8
    left = [np.where(more, max(8 / 1.5 - 2 * slot, 0), 16 - 2 * slot) for slot in range(4)]
    for slot in range(4):
        assert env.shown.state[:, env.shown.e] == pytest.approx(left[slot])
        _, reward, _ = run_slot(env, *bundles(env))
        # Two epochs of v
        assert reward == pytest.approx(sum(np.where(more, 2 / (8 / 1.5), 2 / 16)))
    assert len(env.simulation.finished.index) == 8
    assert env.simulation.loop.now == 4800e9


def test_speeds_vary_around_that_of_the_type_and_epochs_do_not() -> None:
    env = made(elastic(*[(0, 1, 1200)] * 8, extra={"epochs": ["8"] * 8}), speed_variation=0.5)
    seconds = env.trace.duration_ns / 1e9
    assert {*seconds} == {800.0, 2400.0}
    assert env.shown.state[:, env.shown.e].tolist() == [8.0] * 8
    _, reward, _ = run_slot(env, *bundles(env))
    assert reward == pytest.approx(sum(np.where(seconds == 800, 1.0, 0.5)))
    assert {*env.decision_mapping().state().jobs.duration_estimate_s.tolist()} == {1200.0}


def test_policies_estimate_run_times_from_the_stated_epochs() -> None:
    env = made(elastic(*[(0, 1, 1200)] * 8), epoch_error=0.5)
    assert {*env.decision_mapping().state().jobs.duration_estimate_s.tolist()} == {800.0, 2400.0}
    assert play_agent(made(elastic((0, 1, 1200)), epoch_error=0.5), PolicyAgent(Whole(1)), 0).deviations == 0


def test_deviations_are_the_same_for_every_agent_and_of_either_sign_equally_often() -> None:
    trace = generate(DL2(jobs=2000, seed=5))
    few, many = perturbed(trace, 0.1, 0.1), perturbed(trace, 0.3, 0.3)
    assert np.array_equal(few.per_stated_epoch > 1, many.per_stated_epoch > 1)
    assert abs(np.mean(many.per_stated_epoch > 1) - 0.5) < 0.05
    assert np.corrcoef(many.per_stated_epoch, trace.duration_ns / many.trace.duration_ns)[0, 1] < 0.1
    assert perturbed(trace, 0.0, 0.0).trace is trace


class TestAllReduce:
    trace = elastic((0, 2, 2400), (0, 2, 2400), extra={"num_ps": ["0", "2"]})

    def test_server_actions_are_masked_and_the_job_trains_without_servers(self) -> None:
        env = made(self.trace, concurrent=2)
        assert np.flatnonzero(env.action_masks()).tolist() == [worker(0), *range(3, 7)]
        seen, reward, _ = run_slot(env, worker(0), worker(0))
        assert reward == 0.5
        assert not seen[:, env.shown.u].any()
        # 2 of 9 GPUs, 4 of 36 cores
        env.step(np.int64(worker(0)))
        assert env.step(np.int64(worker(0)))[0][0, env.shown.r] == pytest.approx(2 / 9)

    def test_a_decision_gives_it_workers_only(self) -> None:
        env = made(self.trace)
        mapping = env.decision_mapping()
        mapping.begin(Decision({0: Placement((0,), (2,))}))
        assert [mapping.next().action for _ in range(2)] == [worker(0)] * 2

    def test_its_workers_form_a_ring(self) -> None:
        assert units({0: 2}, {}, {0: 1}) == 0.0
        assert units({0: 2, 1: 2}, {}, {0: 1, 1: 1}) == 0.75
        assert units({0: 1, 1: 1}, {}, {0: 1, 1: 3}) == 1.5
        law = SpeedLaw(computing_s=6.0, overhead_s=1.0, unit_s=2.0, worker_s=0.5, server_s=9.0)
        assert believed_step_s(law, 1, 0) == 6 + 1 + 0.5
        assert believed_step_s(law, 2, 0) == 3 + 1 + 2 * 0.5 + 2 * 0.5

    @pytest.mark.parametrize("speeds", ["engine", "analytical"])
    def test_no_job_is_lost_among_jobs_of_both_kinds(self, speeds: str) -> None:
        env = ElasticAllocationEnv(traces=DL2(jobs=20, all_reduce=0.5), cluster="3x8", speeds=speeds, concurrent=6)
        outcome, rewards = play(env, random_agent(5), seed=3)
        assert "0" in env.trace.extra["num_ps"]
        assert (outcome["finished"], outcome["invalid_actions"]) == (20, 0)
        assert sum(rewards) == pytest.approx(20)


@pytest.mark.parametrize("arrivals", ["uniform", "poisson", "daily", "bursty", "batch"])
def test_jobs_of_every_arrival_pattern_finish(arrivals: str) -> None:
    env = ElasticAllocationEnv(traces=DL2(jobs=12, arrivals=arrivals), cluster="3x8", concurrent=5)
    assert play(env, random_agent(5), seed=3)[0]["finished"] == 12


def test_unseen_types_leave_the_shape_of_the_state() -> None:
    few = generate(DL2(jobs=200, models=4))
    assert {*few.model} == {*MODELS[:4]}
    seen, _ = ElasticAllocationEnv(traces=DL2(jobs=5, models=4)).reset()
    assert seen.shape == (40, len(MODELS) + 5)


def test_a_share_of_all_reduce_jobs_changes_nothing_else() -> None:
    some, none = generate(DL2(all_reduce=0.25)), generate(DL2())
    assert 0.15 < np.mean(np.array(some.extra["num_ps"]) == "0") < 0.35
    assert np.array_equal(some.submit_ns, none.submit_ns) and np.array_equal(some.duration_ns, none.duration_ns)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"epoch_error": 1.0}, "epoch_error is 1.0; give a share from 0 to below 1"),
        ({"speed_variation": -0.1}, "speed_variation is -0.1"),
        ({"reward": "all"}, "give one of slot, job"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        ElasticAllocationEnv(**options)


@pytest.mark.parametrize("parameters", [{"models": 9}, {"models": 0}, {"all_reduce": 1.5}])
def test_impossible_workloads_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match=f"{next(iter(parameters))} is"):
        generate(DL2(**parameters))
