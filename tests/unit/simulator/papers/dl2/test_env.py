"""The environment of DL2: its process by hand, its laws, and the speeds of its jobs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import simulator.envs
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import NodeChange, Settings
from simulator.envs.vector import ProcessVectorEnv
from simulator.errors import SettingError
from simulator.papers.dl2.env import ElasticAllocationEnv
from simulator.papers.dl2.servers import Footprints, PlacedSpeed, SpeedLaw, believed_step_s, law_of, packed, units
from simulator.papers.dl2.tasks import BALANCED, PACKED, Tasks
from simulator.slowdown.api import Resident
from simulator.slowdown.links.parameter_server import transfer
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.traces.generators.dl2 import DL2
from simulator.traces.trace import Trace
from tests.unit.simulator.envs.worlds import trace_of

SLOT_S = 1200.0
FREE = Settings(preempt_cost_s=0.0)
Agent = Callable[[ElasticAllocationEnv], int]


def elastic(*jobs: tuple[float, int, float], **columns: Any) -> Trace:
    """Jobs that take 1 to 4 workers and ask for as many servers as workers."""
    return trace_of(*jobs, **({"min_gpus": [1] * len(jobs), "max_gpus": [4] * len(jobs)} | columns))


def worker(row: int) -> int:
    return 3 * row


def server(row: int) -> int:
    return 3 * row + 1


def both(row: int) -> int:
    return 3 * row + 2


def void(env: ElasticAllocationEnv) -> int:
    return 3 * env.options.concurrent


def random_agent(seed: int) -> Agent:
    rng = np.random.default_rng(seed)
    return lambda env: int(rng.choice(np.flatnonzero(env.action_masks())))


def greedy(env: ElasticAllocationEnv) -> int:
    """A worker and a server for the job that has fewest, while there is room for both."""
    rows = np.flatnonzero(env.action_masks()[2:-1:3])
    return both(min(rows.tolist(), key=lambda row: (shares(env)[row], row))) if len(rows) else void(env)


def shares(env: ElasticAllocationEnv) -> list[float]:
    """Workers of each job of the batch."""
    return env.unwrapped._observe()[:, -2].tolist()  # type: ignore[no-any-return, attr-defined]


def play(env: ElasticAllocationEnv, agent: Agent, **reset: Any) -> tuple[dict[str, float], list[float]]:
    """An episode's outcome, and the reward of each slot."""
    _, info = env.reset(**reset)
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step(np.int64(agent(env)))
        assert reward == 0.0 or info["slot_ended"]
        if info["slot_ended"]:
            rewards.append(reward)
        if terminated or truncated:
            return info["outcome"], rewards


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"speeds": "analytical", "placing": "packed"},
        {"traces": DL2(jobs=12, load=1.2), "cluster": "4x4", "concurrent": 3},
        {"traces": [trace_of((0, 2, 600), (50, 1, 60))], "slowdown": ("interference", "node-speed"), "types": ("x",)},
        {"settings": Settings(changes=(NodeChange(4000, 1, "down"), NodeChange(9000, 1, "up")))},
    ],
)
def test_the_checker_of_gymnasium_finds_nothing(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(simulator.envs.ELASTIC, **{"traces": DL2(jobs=6), **options})
        check_env(env.unwrapped)
        env.reset(seed=3)
        for _ in range(50):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                env.reset()


class TestByHand:
    """One node of 4 GPUs and 16 cores; tasks take 2 cores each. Speeds as Optimus believes, which is 1 at the size asked for."""

    trace = elastic(
        (0, 2, 2400), (0, 1, 1200), (0, 1, 600), models=["vgg-16", "dssm", ""], extra={"epochs": list("846")}
    )

    def env(self, **options: Any) -> ElasticAllocationEnv:
        given: dict[str, Any] = {"traces": [self.trace], "cluster": "1x4", "speeds": "analytical", "settings": FREE}
        return ElasticAllocationEnv(**given | {"types": ("dssm", "vgg-16"), "concurrent": 2} | options)

    def test_what_the_state_shows(self) -> None:
        env = self.env(concurrent=4)
        seen, _ = env.reset()
        # x of two types, d, e, r, w, u
        assert seen.tolist() == [
            [0, 1, 0, 8, 0, 0, 0],
            [1, 0, 0, 4, 0, 0, 0],
            [0, 0, 0, 6, 0, 0, 0],
            [0] * 7,
        ]
        seen, *_ = env.step(np.int64(both(0)))
        # A quarter of the GPUs is more than 4 of 16 cores are
        assert seen[0].tolist() == [0, 1, 0, 8, 0.25, 1, 1]
        seen, *_ = env.step(np.int64(server(0)))
        assert seen[0].tolist() == [0, 1, 0, 8, 0.375, 1, 2]
        env.step(np.int64(worker(0)))
        seen, reward, *_ = env.step(np.int64(void(env)))
        # At its own size the first trained half of its epochs, and equation 1 says so; the others were given nothing.
        assert seen[0].tolist() == [0, 1, 1, 4, 0, 0, 0]
        assert seen[1].tolist() == [1, 0, 0, 4, 0, 0, 0]
        assert reward == 0.5

    def test_void_ends_a_batch_and_the_last_void_the_slot(self) -> None:
        env = self.env()
        env.reset()
        env.step(np.int64(both(1)))
        seen, reward, _, _, info = env.step(np.int64(void(env)))
        # The third job, alone in its batch; no time has passed
        assert seen[:, 3].tolist() == [6, 0]
        assert (reward, info["slot_ended"], env.loop.now) == (0.0, False, 0)
        env.step(np.int64(both(0)))
        seen, reward, terminated, _, info = env.step(np.int64(void(env)))
        # Both have finished, after 600 and 1,200 s
        assert (reward, info["slot_ended"], terminated) == (2.0, True, False)
        assert env.loop.now == SLOT_S * 1e9
        assert seen[:, 3].tolist() == [8, 0]
        for _ in range(2):
            env.step(np.int64(both(0)))
            env.step(np.int64(both(0)))
            _, reward, terminated, _, info = env.step(np.int64(void(env)))
            assert reward == 0.5
        assert terminated
        assert info["outcome"]["avg_jct_s"] == pytest.approx((600 + 1200 + 3600) / 3)
        assert info["outcome"]["preemptions"] == 0

    def test_a_full_batch_ends_it_too(self) -> None:
        env = self.env()
        env.reset()
        for _ in range(3):
            assert not env.step(np.int64(both(0)))[4]["slot_ended"]
        mask = env.action_masks()
        assert mask.tolist() == [True] * 7
        # The last GPU, and 4 cores for it and one server
        env.step(np.int64(worker(1)))
        assert np.flatnonzero(env.action_masks()).tolist() == [server(0), server(1), void(env)]
        assert env.step(np.int64(server(1)))[4]["slot_ended"]

    def test_impossible_actions_are_masked_and_count_as_void(self) -> None:
        env = self.env(concurrent=4)
        _, info = env.reset()
        assert np.flatnonzero(env.action_masks()).tolist() == [*range(9), void(env)]
        for _ in range(3):
            env.step(np.int64(server(0)))
        # 10 cores are left, and with 4 servers the job has as many as it takes
        env.step(np.int64(server(0)))
        assert np.flatnonzero(env.action_masks()).tolist() == [worker(0), *range(3, 9), void(env)]
        seen, reward, _, _, info = env.step(np.int64(server(0)))
        assert (reward, info["slot_ended"]) == (0.0, True)
        assert env._invalid == 1
        assert not seen[:, -2:].any()
        with pytest.raises(gymnasium.error.InvalidAction):
            env.step(np.int64(void(env) + 1))

    @pytest.mark.parametrize(
        ("actions", "runs"), [((0, 0), False), ((1, 1), False), ((0, 1), False), ((0, 0, 1), True)]
    )
    def test_a_job_without_a_server_or_its_least_workers_waits(self, actions: tuple[int, ...], runs: bool) -> None:
        env = self.env(traces=[elastic((0, 2, 2400), min_gpus=[2])])
        env.reset()
        for action in actions:
            env.step(np.int64(action))
        _, reward, *_ = env.step(np.int64(void(env)))
        assert (reward > 0) == runs
        assert bool(env.loop.running) == runs
        assert env.loop.pool.total == (2 if runs else 4)

    def test_changing_a_job_costs_what_settings_say(self) -> None:
        trace = elastic((0, 1, 6000), (0, 1, 6000))
        env = self.env(traces=[trace], settings=Settings(preempt_cost_s=120.0), concurrent=3)
        env.reset()
        rewards = []
        for servers in ((1, 1), (1, 1), (2, 1), (0, 1), (1, 1)):
            for row, count in enumerate(servers):
                for action in (worker(row), *[server(row)] * count) if count else ():
                    env.step(np.int64(action))
            rewards.append(env.step(np.int64(void(env)))[1])
        slot = SLOT_S / 6000
        assert rewards[:2] == pytest.approx([2 * slot] * 2)
        # A second server costs 120 s; without servers there is no progress; coming back costs once more.
        other = believed_step_s(law(), 1, 1) / believed_step_s(law(), 1, 2)
        assert rewards[2] == pytest.approx(slot + (SLOT_S - 120) / 6000 * other)
        assert rewards[3:] == pytest.approx([slot, (SLOT_S - 120) / 6000 + slot])
        first = next(job for job in env.loop.running if job.index == 0)
        assert (first.resizes, first.stops) == (1, 1)

    def test_a_job_that_is_not_preemptible_keeps_its_tasks(self) -> None:
        env = self.env(traces=[elastic((0, 2, 2400), (0, 1, 2400), preemptible=[False, True])])
        env.reset()
        for action in (both(0), both(0), void(env)):
            seen, *_ = env.step(np.int64(action))
        assert seen[0, -2:].tolist() == [2, 2]
        assert np.flatnonzero(env.action_masks()).tolist() == [*range(3, 6), void(env)]
        _, reward, *_ = env.step(np.int64(void(env)))
        assert reward == 0.5

    def test_slots_without_jobs_are_skipped(self) -> None:
        env = self.env(traces=[elastic((1300, 1, 600), (90_000, 1, 600))])
        env.reset()
        assert env.loop.now == 2 * SLOT_S * 1e9
        env.step(np.int64(both(0)))
        env.step(np.int64(void(env)))
        assert env.loop.now == 90_000 * 1e9

    def test_an_agent_that_never_gives_anything_is_cut_off(self) -> None:
        env = self.env(traces=[elastic((0, 1, 600))])
        outcome, rewards = play(env, void)
        assert (outcome["finished"], len(rewards), sum(rewards)) == (0, 99, 0.0)
        assert play(self.env(max_steps=7), void)[0]["steps"] == 7

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"speeds": "true"}, "give one of engine, analytical"),
            ({"placing": "best"}, "give one of balanced, packed"),
            ({"decide": "events"}, "give one of rounds"),
            ({"concurrent": 0}, "give at least 1"),
            ({"cpus_per_gpu": 0}, "above 0"),
            ({"skip_forced": True}, "leave it out"),
            ({"render_mode": "human"}, "draws nothing"),
            ({"jobs": 3}, "there is no option 'jobs'"),
        ],
    )
    def test_impossible_options_are_refused(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(SettingError, match=says):
            ElasticAllocationEnv(**options)

    def test_columns_that_are_no_numbers_are_refused(self) -> None:
        env = self.env(traces=[elastic((0, 1, 60), extra={"epochs": ["many"]})])
        with pytest.raises(SettingError, match="epochs has 'many'"):
            env.reset()


@given(data=st.data())
def test_room_equals_that_of_a_search_of_every_node(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 3))
    gpus = data.draw(st.lists(st.integers(1, 3), min_size=nodes, max_size=nodes))
    cpus = data.draw(st.lists(st.integers(0, 9), min_size=nodes, max_size=nodes))
    up = data.draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes))
    tasks = Tasks(gpus, cpus, up, worker_cpus=3, server_cpus=2, rule=data.draw(st.sampled_from([BALANCED, PACKED])))
    free = [(gpu * is_up, cpu * is_up) for gpu, cpu, is_up in zip(gpus, cpus, up, strict=True)]
    before = {node: data.draw(st.integers(1, 2)) for node in range(nodes) if data.draw(st.booleans())}
    while True:
        for_worker = [node for node, (gpu, cpu) in enumerate(free) if gpu >= 1 and cpu >= 3]
        for_server = [node for node, (_, cpu) in enumerate(free) if cpu >= 2]
        pairs = [(one, two) for one in for_worker for two in for_server if one != two or free[one][1] >= 5]
        assert tasks.room == (bool(for_worker), bool(for_server), bool(pairs))
        kind = data.draw(st.sampled_from([0, 1, 2]))
        if not tasks.room[kind]:
            break
        job = data.draw(st.integers(0, 2))
        counts = [dict(tasks.workers(job)), dict(tasks.servers(job))]
        if kind == 2:
            one, two = tasks.give_pair(job, before, before)
            assert (one == two) == any(gpu >= 1 and cpu >= 5 for gpu, cpu in free)
        elif kind == 0:
            tasks.give_worker(job, before)
        else:
            tasks.give_server(job, before)
        for was, now, (gpu, cpu) in zip(
            counts, (tasks.workers(job), tasks.servers(job)), ((1, 3), (0, 2)), strict=True
        ):
            for node in range(nodes):
                new = now.get(node, 0) - was.get(node, 0)
                free[node] = free[node][0] - gpu * new, free[node][1] - cpu * new
        assert min(min(pair) for pair in free) >= 0
        assert [gpu for gpu, _ in free] == tasks.gpus.tolist()
        assert [cpu for _, cpu in free] == tasks.cpus.tolist()


def test_a_pair_shares_a_node_and_tasks_one_by_one_do_not() -> None:
    def empty() -> Tasks:
        return Tasks([2] * 3, [8] * 3, [1] * 3, worker_cpus=2, server_cpus=2, rule=BALANCED)

    pairs = empty()
    assert [pairs.give_pair(0, {}, {}) for _ in range(4)] == [(0, 0), (1, 1), (2, 2), (0, 0)]
    # In the slot after it, a pair returns to the node where the job had one.
    again = empty()
    assert again.give_pair(0, {2: 1}, {0: 1, 2: 1}) == (2, 2)
    for server_first in (False, True):
        tasks = empty()
        first, second = (
            (tasks.give_server, tasks.give_worker) if server_first else (tasks.give_worker, tasks.give_server)
        )
        assert (first(0, {}), second(0, {})) == (0, 1)


@pytest.mark.parametrize("speeds", ["engine", "analytical"])
@pytest.mark.parametrize("placing", ["balanced", "packed"])
def test_greedy_agents_beat_random_ones_and_lose_no_job(speeds: str, placing: str) -> None:
    env = ElasticAllocationEnv(traces=DL2(jobs=25), cluster="3x8", speeds=speeds, placing=placing, concurrent=12)
    waits = []
    for agent in (greedy, random_agent(5)):
        outcome, rewards = play(env, agent, seed=3)
        assert outcome["finished"] == 25
        assert outcome["invalid_actions"] == 0
        assert sum(rewards) == pytest.approx(25)
        assert min(rewards) >= 0
        assert env.loop.pool.total == 24
        waits.append(outcome["avg_jct_s"])
    assert waits[0] < 0.8 * waits[1]


def test_work_lost_by_a_failure_is_done_again() -> None:
    changes = (NodeChange(3000, 0, "down"), NodeChange(6000, 0, "up"))
    env = ElasticAllocationEnv(
        traces=DL2(jobs=6), cluster="2x4", settings=Settings(preempt_cost_s=0.05, changes=changes)
    )
    outcome, rewards = play(env, greedy, seed=2)
    assert outcome["finished"] == 6
    finished = env.simulation.finished
    assert sum(finished.failures) > 0
    assert sum(finished.lost) > 0
    assert sum(rewards) == pytest.approx(6)


@pytest.mark.parametrize("speeds", ["engine", "analytical"])
def test_the_same_seed_gives_the_same_episode(speeds: str) -> None:
    def trail(seed: int) -> list[bytes]:
        env = ElasticAllocationEnv(traces=DL2(jobs=8), cluster="2x4", speeds=speeds)
        agent, steps, over = random_agent(9), [], False
        steps.append(env.reset(seed=seed)[0].tobytes())
        while not over:
            seen, reward, terminated, truncated, _ = env.step(np.int64(agent(env)))
            steps.append(seen.tobytes() + np.float64(reward).tobytes())
            over = terminated or truncated
        return steps

    assert trail(4) == trail(4) != trail(5)


def law(requested: int = 1) -> SpeedLaw:
    """Return the law of a job with an unknown model, on the NICs of the default cluster."""
    topology = parse_cluster("1x4").topology
    gbs = sum(topology.capacity[link] for link in topology.routes.nics(0))
    return law_of(paper_profiles("dl2").of(""), -1, requested, gbs)


class TestSpeeds:
    def speeds(self, speeds: str, *jobs: tuple[int, int]) -> dict[int, float]:
        """Return the factors of jobs with those workers and servers on two nodes of 4, in the order of the tasks."""
        trace = elastic(*[(0, 2, 1e6)] * len(jobs), models=["vgg-16"] * len(jobs))
        env = ElasticAllocationEnv(traces=[trace], cluster="2x4", speeds=speeds, settings=FREE)
        env.reset()
        for row, (workers, servers) in enumerate(jobs):
            for action in [worker(row)] * workers + [server(row)] * servers:
                assert env.action_masks()[action]
                env.step(np.int64(action))
        if not env.loop.running:
            env.step(np.int64(void(env)))
        return {job.index: job.speed for job in env.loop.running}

    def test_neighbours_slow_a_job_down_in_the_engine_and_not_in_the_analytical_model(self) -> None:
        for speeds in ("engine", "analytical"):
            alone, beside = self.speeds(speeds, (2, 2)), self.speeds(speeds, (2, 2), (2, 2))
            # Two jobs on the same two nodes: each has half of the NICs for itself
            assert beside[0] == pytest.approx(beside[1])
            if speeds == "engine":
                assert beside[0] < 0.95 * alone[0]
            else:
                assert beside[0] == alone[0] == 1.0

    def test_without_neighbours_each_job_of_the_engine_is_as_fast_as_alone(self) -> None:
        profiles, footprints = paper_profiles("dl2"), Footprints()
        footprints.asked = [2, 2]
        model = PlacedSpeed(parse_cluster("4x4").topology, profiles, footprints)
        footprints.of.update({0: {0: 1, 1: 1}, 1: {2: 1, 3: 1}})
        model.enter(Resident(0, "vgg-16", 32, 2, [0, 1], [1, 1]))
        alone = model.factor(0)
        model.enter(Resident(1, "vgg-16", 32, 2, [2, 3], [1, 1]))
        assert model.factor(0) == model.factor(1) == alone
        # A server of the second moves to a node of the first, and away again
        for where, slower in (({1: 1, 3: 1}, True), ({2: 1, 3: 1}, False)):
            model.leave(1)
            footprints.of[1] = where
            model.enter(Resident(1, "vgg-16", 32, 2, [2, 3], [1, 1]))
            assert (model.factor(0) < alone) == slower
            assert sorted(model.changed())[-1] == 1

    def test_the_request_alone_on_the_fewest_nodes_runs_at_the_ideal_speed(self) -> None:
        footprints = Footprints()
        footprints.asked = [4]
        model = PlacedSpeed(parse_cluster("2x4").topology, paper_profiles("dl2"), footprints)
        footprints.of[0] = {0: 4}
        model.enter(Resident(0, "vgg-16", 32, 4, [0], [4]))
        assert model.factor(0) == 1.0

    @given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 3))
    def test_servers_on_the_workers_nodes_send_as_much_as_in_the_simulators_model(
        self, counts: list[int], each: int, crowd: int
    ) -> None:
        workers = dict(enumerate(counts))
        servers = {node: each * count for node, count in workers.items()}
        found = units(workers, servers, dict.fromkeys(workers, crowd))
        assert found == pytest.approx(transfer(counts, sum(servers.values()), [crowd] * len(counts)))

    def test_packed(self) -> None:
        assert packed(10, 4, 4) == ({0: 4, 1: 4, 2: 2}, {0: 2, 1: 1, 2: 1})
        assert packed(3, 1, 4) == ({0: 3}, {0: 1})
        assert packed(8, 1, 4) == ({0: 4, 1: 4}, {0: 1})

    @given(
        st.tuples(st.floats(0.1, 10), st.floats(0, 1), st.floats(0, 0.1), st.floats(0, 0.1)),
        st.integers(1, 16),
        st.integers(1, 16),
    )
    def test_optimus_is_exact_where_its_law_is_the_true_one(
        self, numbers: tuple[float, float, float, float], workers: int, servers: int
    ) -> None:
        """Without transfer, which is not just w/p."""
        computing, overhead, per_worker, per_server = numbers
        truth = SpeedLaw(computing, overhead, 0.0, per_worker, per_server)
        assert believed_step_s(truth, workers, servers) == pytest.approx(truth.step_s(workers, servers, 9.9), rel=1e-6)

    @pytest.mark.parametrize(("model", "mean", "worst"), [("vgg-16", 0.06, 0.16), ("dssm", 0.002, 0.006)])
    def test_its_error_grows_with_what_a_model_sends(self, model: str, mean: float, worst: float) -> None:
        truth = law_of(paper_profiles("dl2").of(model), -1, 1, 12.5)
        errors = [
            abs(believed_step_s(truth, w, p) / truth.step_s(w, p, max(1.0, w / p)) - 1)
            for w in range(1, 17)
            for p in range(1, 17)
        ]
        assert mean / 2 < float(np.mean(errors)) < mean
        assert worst / 2 < max(errors) < worst

    def test_measured_coefficients_are_used(self) -> None:
        profile = paper_profiles("dl2").of("vgg-16")
        assert law_of(profile, 32, 4, 12.5).computing_s == pytest.approx(4 * profile.compute_s)
        measured = replace(profile, servers=(0.01, 0.5, 1.0, 0.1, 0.2), batch=8)
        assert law_of(measured, 16, 4, 12.5) == SpeedLaw(0.64, 0.5, 1.0, 0.1, 0.2)
        assert law_of(measured, -1, 4, 12.5).computing_s == pytest.approx(0.32)


def test_the_environment_runs_in_worker_processes() -> None:
    make = partial(ElasticAllocationEnv, traces=DL2(jobs=3), cluster="1x8", concurrent=4)
    envs = ProcessVectorEnv(make, 2, workers=1)
    single = make()
    try:
        seen, infos = envs.reset(seed=7)
        assert np.array_equal(np.asarray(seen)[0], single.reset(seed=7)[0])
        masks: npt.NDArray[np.bool_] = envs.action_masks()
        assert np.array_equal(masks[0], single.action_masks()) and infos == {}
        silent = 0
        for _ in range(30):
            actions = masks.argmax(axis=1)
            seen, rewards, _, _, infos = envs.step(actions)
            expected, reward, terminated, _, info = single.step(np.int64(actions[0]))
            assert infos.get("slot_ended", [False])[0] == info["slot_ended"]
            silent += "slot_ended" not in infos
            assert np.array_equal(np.asarray(seen)[0], expected)
            assert rewards[0] == reward
            if terminated:
                break
            masks = envs.action_masks()
        assert silent > 10, "most steps need no message from the workers"
    finally:
        envs.close()
