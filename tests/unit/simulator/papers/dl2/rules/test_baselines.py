"""Baselines in DL2's environment: their first slot by hand, and what the greedy oracle knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.learned.dl2.state_columns import SERVER, WORKER
from simulator.agents.comparing import compare_agents
from simulator.agents.episodes import make, play
from simulator.agents.named import agent_of
from simulator.envs import CONTENTION, ELASTIC, baselines
from simulator.errors import SettingError
from simulator.papers.dl2.env import ElasticAllocationEnv
from simulator.papers.dl2.rules.baselines import DRF, FIFO, SRTF, ElasticAgent, Optimus, Tetris
from simulator.papers.dl2.rules.greedy import Greedy
from simulator.papers.dl2.rules.slot_value import SlotValue
from simulator.traces.generators.dl2 import DL2
from simulator.traces.trace import Trace
from tests.unit.simulator.papers.dl2.test_env import FREE, both, elastic, random_agent, server, void, worker


def first_slot(agent: ElasticAgent, trace: Trace, **options: Any) -> list[int]:
    """Return the actions of the agent in the first slot, without void."""
    given: dict[str, Any] = {"traces": [trace], "cluster": "1x4", "speeds": "analytical", "settings": FREE}
    env = ElasticAllocationEnv(**given | {"concurrent": 4} | options)
    seen, _ = env.reset()
    agent.begin(env, 0)
    taken, ended = [], False
    while not ended:
        taken.append(agent.act(seen, env.action_masks()))
        seen, _, _, _, info = env.step(np.int64(taken[-1]))
        ended = info["slot_ended"]
    return [action for action in taken if action != void(env)]


class TestByHand:
    """Two jobs on a node of 4 GPUs: the first is long, the second is short and requests 2 workers."""

    trace = elastic((0, 1, 6000), (0, 2, 600))

    @pytest.mark.parametrize(
        ("agent", "actions"),
        [
            (DRF(), [both(0), both(1), both(0), both(1)]),
            (FIFO(), [both(0), both(1), both(1)]),
            (FIFO(workers=3), [both(0), both(0), both(0), both(1)]),
            (SRTF(), [both(1), both(1), both(0)]),
            (SRTF(workers=3), [both(1), both(1), both(1), both(0)]),
            (Tetris(workers=3), [both(1), both(1), both(1), both(0)]),
            # Without the time, both pack equally well: the first comes first
            (Tetris(workers=3, time_weight=0), [both(0), both(0), both(0), both(1)]),
        ],
    )
    def test_tasks_go_where_the_rule_says(self, agent: ElasticAgent, actions: list[int]) -> None:
        assert first_slot(agent, self.trace) == actions

    def test_without_bundles_a_pair_is_a_server_and_a_worker(self) -> None:
        assert first_slot(SRTF(), self.trace, bundle=False) == [
            *(server(1), worker(1), server(1), worker(1)),
            *(server(0), worker(0)),
        ]

    def test_all_reduce_jobs_get_workers(self) -> None:
        trace = elastic((0, 1, 6000), (0, 2, 600), extra={"num_ps": ["0", "2"]})
        # Shares after the first worker: 1/4 of the GPUs each
        assert first_slot(DRF(), trace)[:3] == [worker(0), both(1), worker(0)]

    def test_stated_epochs_decide_which_job_ends_first(self) -> None:
        trace = elastic((0, 1, 1000), (0, 1, 1100), (0, 1, 1200), (0, 1, 1300), extra={"epochs": ["10"] * 4})
        env = ElasticAllocationEnv(traces=[trace], cluster="4x4", epoch_error=0.5)
        seen, _ = env.reset()
        agent = SRTF()
        agent.begin(env, 0)
        expected = env.perturbation.expected_s
        assert agent.act(seen, None) == both(int(expected.argmin()))
        assert len({*env.perturbation.per_stated_epoch}) == 2

    def test_optimus_gives_each_a_pair_and_then_most_to_the_long_job(self) -> None:
        taken = first_slot(Optimus(), self.trace, cluster="1x8")
        assert taken[:2] == [both(0), both(1)]
        after = [action // 3 for action in taken[2:]]
        assert after.count(0) >= after.count(1)

    @pytest.mark.parametrize("bundle", [True, False])
    def test_optimus_leaves_no_server_without_a_worker(self, bundle: bool) -> None:
        trace = elastic(*[(0, 1, 6000)] * 3)
        env = ElasticAllocationEnv(traces=[trace], cluster="1x3", bundle=bundle, settings=FREE)
        episode = play(env, Optimus(), 0)
        assert (episode.truncated, episode.outcome["finished"]) == (False, 3)
        # Three GPUs, three jobs: all run from the first slot on
        assert max(env.simulation.finished.first_start) == 0

    def test_the_oracle_stops_where_nothing_gains(self) -> None:
        # 300 s of work end in the slot with one pair; a second one would add nothing.
        assert first_slot(Greedy(), elastic((0, 1, 300)), cluster="4x4") == [both(0)]

    def test_the_oracle_gives_the_pair_to_the_job_that_gains_more(self) -> None:
        taken = first_slot(Greedy(), elastic((0, 1, 60_000), (0, 1, 3000)), cluster="1x1")
        assert taken == [both(1)]

    def test_the_oracle_starts_jobs_without_bundles_and_with_a_minimum(self) -> None:
        trace = elastic((0, 2, 6000), min_gpus=[2])
        assert first_slot(Greedy(), trace, cluster="1x2", bundle=False)[:3] == [server(0), worker(0), worker(0)]
        assert first_slot(Greedy(), trace, cluster="1x2")[:2] == [both(0), worker(0)]


@pytest.mark.parametrize("speeds", ["engine", "analytical"])
@pytest.mark.parametrize("placing", ["balanced", "packed"])
def test_the_oracle_knows_the_reward_of_a_slot_in_which_no_job_finishes(speeds: str, placing: str) -> None:
    trace = DL2(jobs=12, arrivals="batch", median_s=1e6, mean_s=2e6, all_reduce=0.3)
    env = ElasticAllocationEnv(traces=trace, cluster="5x4", speeds=speeds, placing=placing, settings=FREE)
    env.reset(seed=3)
    agent = random_agent(7)
    for _ in range(3):
        ended = False
        while not ended:
            value = SlotValue(env)
            action = agent(env)
            if action != void(env):
                # What the oracle expects from the action is what a new look at the tasks finds afterwards.
                row, kind = divmod(action, 3)
                job = env.shown.batch[row]
                gain = value.gain(job, [kind])
                assert sum(SlotValue(env)._values.values()) == pytest.approx(sum(value._values.values()))
            before = sum(value._values.values())
            _, reward, _, _, info = env.step(np.int64(action))
            ended = info["slot_ended"]
            if not ended and action != void(env):
                value.take(job)
                assert sum(value._values.values()) == pytest.approx(before + gain)
                assert value._values == pytest.approx(SlotValue(env)._values)
            elif ended:
                expected = before + (gain if action != void(env) else 0.0)
        assert reward == pytest.approx(expected, rel=1e-6)


@settings(max_examples=40)
@given(data=st.data())
def test_taking_back_a_task_restores_the_room(data: st.DataObject) -> None:
    env = ElasticAllocationEnv(traces=DL2(jobs=8, arrivals="batch"), cluster="2x3", cpus_per_gpu=3.0)
    env.reset(seed=1)
    tasks = env.tasks
    for _ in range(12):
        kind = data.draw(st.sampled_from([WORKER, SERVER]))
        if not tasks.room[kind]:
            continue
        job = data.draw(st.integers(0, 3))
        before = (tasks.room, tasks.gpus.tolist(), tasks.cpus.tolist(), dict(tasks.workers(job)))
        node = tasks.give_worker(job, {}) if kind == WORKER else tasks.give_server(job, {})
        if data.draw(st.booleans()):
            tasks.take_back(job, node, worker=kind == WORKER)
            assert (tasks.room, tasks.gpus.tolist(), tasks.cpus.tolist(), dict(tasks.workers(job))) == before


@pytest.mark.parametrize(
    "options", [{}, {"bundle": False}, {"concurrent": 4}, {"epoch_error": 0.2, "speed_variation": 0.273}]
)
@pytest.mark.parametrize("name", [name for name, env in baselines().items() if env == ELASTIC])
def test_every_baseline_finishes_all_jobs_under_every_option(name: str, options: dict[str, Any]) -> None:
    agent = agent_of(name)
    env = make(ELASTIC, traces=DL2(jobs=20, all_reduce=0.2), cluster="3x8", **options)
    first, again = play(env, agent, 5), play(env, agent, 5)  # type: ignore[arg-type]
    assert first.outcome["finished"] == 20
    assert first.outcome["invalid_actions"] == 0
    assert first == again


def test_all_agents_meet_the_same_deviations() -> None:
    options = {"traces": DL2(jobs=10), "cluster": "3x8", "speed_variation": 0.3}
    found = compare_agents(ELASTIC, options, {"one": DRF(), "two": DRF()}, [1, 2], lambda _share: None)
    one, two = ([each.outcome["avg_jct_s"] for each in found.episodes[name]] for name in ("one", "two"))
    assert one == two


def test_baselines_refuse_other_environments_and_options() -> None:
    with pytest.raises(SettingError, match="act in headway/ElasticAllocation-v0"):
        play(make(CONTENTION), DRF(), 0)
    with pytest.raises(SettingError, match=r"dl2-srtf cannot be made: workers is -1; give a whole number, 0 or more"):
        agent_of("dl2-srtf:workers=-1")
    with pytest.raises(SettingError, match=r"dl2-drf cannot be made.*speed"):
        agent_of("dl2-drf:speed=3")
