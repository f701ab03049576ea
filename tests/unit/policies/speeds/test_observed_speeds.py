"""Speeds that are observed while jobs run, and fits that improve with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.api import Decision
from policies.heuristics.allocation.optimus import Optimus
from policies.model import ClusterState, EstimateSource, Placement
from policies.speeds.observed_speeds import MOST_SIZES, ObservedSpeeds
from policies.speeds.worker_scaling import fitted, least_squares, remaining_at_one
from policies.wire.state import parse_state, serialize_state
from simulator.cluster.cluster import parse_cluster
from simulator.engine.settings import Settings
from simulator.engine.simulation import Simulation
from simulator.slowdown.profiles.papers import paper_profiles
from simulator.slowdown.registry import build
from tests.unit.policies.heuristics.allocation.test_optimus import FLAT, profiled
from tests.unit.policies.states.cluster import Job, Node, cluster
from tests.unit.simulator.engine.build import Does, trace_of

SIZES = (4, 2, 8, 3)


def states_of_a_run(preempt_cost_s: float = 30.0) -> list[tuple[ClusterState, float]]:
    """One VGG16 that asks for 4 GPUs of two nodes of 4 and has another size every 1,000 s; each state with its speed."""
    seen: list[tuple[ClusterState, float]] = []

    def decide(state: ClusterState) -> Decision:
        gpus = SIZES[int(state.time_s // 1000) % len(SIZES)]
        speed = simulation.loop.running[0].speed if simulation.loop.running else 0.0
        seen.append((state, speed))
        return Decision({0: Placement.of({0: min(gpus, 4), 1: max(gpus - 4, 0)} if gpus > 4 else {0: gpus})})

    trace = trace_of((0, 4, 9000), min_gpus=[1], max_gpus=[8], model=["vgg16"])
    machine = parse_cluster("2x4")
    models = build(("locality", "scaling"), topology=machine.topology, profiles=paper_profiles())
    policy = Does(decide, resizes=True, preempts=True, round_s=100.0)
    simulation = Simulation(trace, machine, policy, Settings(preempt_cost_s=preempt_cost_s), models)
    simulation.run(until_s=3950)
    return seen


class TestSpeeds:
    def test_observed_speeds_are_those_of_the_simulator(self) -> None:
        watch, known = ObservedSpeeds(), {}
        for state, speed in states_of_a_run():
            found = watch.update(state).get(0, {})
            occupied = int(state.jobs.placement_gpus.sum())
            if occupied in found:
                known[occupied] = speed
                assert found[occupied] == pytest.approx(speed, abs=1e-6)
            assert found.keys() == known.keys()
        assert known.keys() == set(SIZES)
        assert len({round(speed, 3) for speed in known.values()}) == 4

    def test_the_wire_format_changes_no_observed_speed(self) -> None:
        here, there = ObservedSpeeds(), ObservedSpeeds()
        for state, _ in states_of_a_run():
            assert here.update(state) == there.update(parse_state(serialize_state(state)))
            assert here.update(state) == here.update(state)

    def test_starting_up_does_not_count(self) -> None:
        """The time does not count, nor does a state during it."""
        slow, fast = (
            [watch.update(state) for state, _ in states_of_a_run(cost)][-1]
            for cost, watch in ((350.0, ObservedSpeeds()), (0.0, ObservedSpeeds()))
        )
        assert slow[0] == pytest.approx(fast[0], abs=1e-6)

    @staticmethod
    def look(
        watch: ObservedSpeeds, service_s: float, remaining_s: float, gpus: int = 2, **job: object
    ) -> dict[int, float]:
        """Return the speeds after a state in which a job that requests 4 GPUs has so many."""
        running = Job(
            gpus=4, sizes=(1, 32), occupied={0: gpus}, service_s=service_s, estimate_s=service_s + remaining_s
        )
        state = cluster([Node(gpus=32)], [replace(running, **job)])  # type: ignore[arg-type]
        return watch.update(state).get(0, {})

    def test_an_estimate_that_only_counts_down_gives_no_speed(self) -> None:
        watch = ObservedSpeeds()
        assert [self.look(watch, 100.0 * step, 1000 - 100.0 * step) for step in range(5)] == [{}] * 5

    def test_at_the_size_asked_for_full_speed_is_one(self) -> None:
        watch = ObservedSpeeds()
        for step in range(4):
            found = self.look(watch, 100.0 * step, 1000 - 100.0 * step, gpus=4)
        assert found == {4: 1.0}

    def test_changed_estimates_give_no_speed(self) -> None:
        watch = ObservedSpeeds()
        looks = [(0, 900), (100, 850), (200, 800), (300, 2000), (400, 1000), (500, 950), (600, 0), (700, 0)]
        found = [self.look(watch, service, remaining) for service, remaining in looks]
        assert found == [{}, {}, *[{2: 0.5}] * 6]

    @pytest.mark.parametrize("source", [EstimateSource.HISTORY, EstimateSource.TIME_LIMIT])
    def test_an_estimate_that_changes_by_a_little_is_no_progress(self, source: EstimateSource) -> None:
        """Mean run times of past jobs change whenever one ends, and users change time limits."""
        states = []
        for step in range(60):
            estimate_s = 36_000.0 + (5.0 if step >= 30 else 0.0)
            running = Job(gpus=8, sizes=(2, 16), occupied={0: 16}, service_s=60.0 * step, estimate_s=estimate_s)
            state = cluster([Node(gpus=16)], [running], time_s=1000.0 + 60.0 * step)
            states.append(replace(state, jobs=replace(state.jobs, estimate_source=np.array([source]))))
        watch, policy = ObservedSpeeds(), Optimus()
        assert [watch.update(state) for state in states] == [{}] * 60
        for state in states:
            decision = policy.decide(state)
        assert decision.allocation[0].num_gpus == 16

    def test_an_earlier_state_gives_no_speed(self) -> None:
        watch = ObservedSpeeds()
        for service, remaining in ((0, 900), (100, 850), (200, 800), (100, 850), (200, 800), (300, 750)):
            found = self.look(watch, service, remaining)
        assert found == {2: 0.5}

    def test_speeds_of_ended_jobs_are_dropped_and_those_of_paused_jobs_are_not(self) -> None:
        watch = ObservedSpeeds()
        for service, remaining in ((0, 900), (100, 850), (200, 800)):
            self.look(watch, service, remaining)
        assert self.look(watch, 200, 800, occupied=None) == {2: 0.5}
        watch.update(cluster([Node()], []))
        assert self.look(watch, 200, 800) == {}
        assert ObservedSpeeds().update(cluster([Node()], [Job(gpus=2, occupied={0: 2}, estimate_s=9)])) == {}

    def test_only_the_last_sizes_of_a_job_are_kept(self) -> None:
        watch = ObservedSpeeds()
        service, remaining = 0.0, 1e6
        for gpus in range(1, 31):
            for _ in range(3):
                found = self.look(watch, service, remaining, gpus)
                service, remaining = service + 100, remaining - 10
        assert list(found) == list(range(31 - MOST_SIZES, 31))


class TestFits:
    @given(
        st.lists(
            st.tuples(st.integers(1, 64), st.floats(1, 20)), min_size=2, max_size=5, unique_by=lambda point: point[0]
        )
    )
    def test_unknown_steps_do_not_count(self, points: list[tuple[int, float]]) -> None:
        workers, steps = np.array(points, dtype=np.float64).T
        alone = least_squares(workers, steps[None])
        padded = np.full((2, len(points) + 2), np.nan), np.full((2, len(points) + 2), 3.0)
        padded[0][1, 1:-1], padded[1][1, 1:-1] = steps, workers
        padded[0][0, :2], padded[1][0, :2] = (1.0, 2.0), (1.0, 2.0)
        np.testing.assert_allclose(least_squares(padded[1], padded[0])[:, 1], alone[:, 0], rtol=1e-9, atol=1e-12)

    @given(
        st.floats(0.1, 1), st.floats(0.001, 0.5), st.integers(1, 8), st.sets(st.integers(1, 32), min_size=2, max_size=5)
    )
    def test_without_profiles_speeds_reveal_the_scaling_of_a_job(
        self, a: float, b: float, asked: int, sizes: set[int]
    ) -> None:
        state = cluster([Node()], [Job(gpus=asked), Job(gpus=asked)])

        def throughput(workers: int) -> float:
            return workers / (a + b * workers)

        observed = {0: {size: throughput(size) / throughput(asked) for size in sizes}}
        found = remaining_at_one(state, np.array([500.0, 500.0]), observed)
        assert found[0] == pytest.approx(500 * throughput(asked) * a, rel=1e-6)
        # Of the other nothing is known: it is taken for linear
        assert found[1] == pytest.approx(500 * asked)

    def test_without_profiles_the_requested_size_alone_gives_no_scaling(self) -> None:
        state = cluster([Node()], [Job(gpus=4)])
        assert remaining_at_one(state, np.array([100.0]), {0: {4: 0.7}}) == pytest.approx(400)

    def test_speeds_that_equal_the_profile_change_nothing(self) -> None:
        state = profiled(cluster([Node(gpus=4)] * 4, [Job(gpus=4)]), [0], FLAT, sizes=[0.0])
        plain = remaining_at_one(state, np.array([100.0]), {})
        assert remaining_at_one(state, np.array([100.0]), {0: {8: 2.0, 2: 0.5}}) == pytest.approx(plain)
        assert fitted(state)[0] == pytest.approx(1)

    def test_a_job_that_gains_less_gets_fewer_gpus(self) -> None:
        """With eight times two GPUs one was seen to be hardly faster, the other nearly eight times; there are no profiles."""
        sizes: dict[str, list[int]] = {}
        for fit in ("online", "profiles"):
            policy = Optimus(fit=fit)
            for step in range(4):
                jobs = []
                for speed in (1.1, 7.9):
                    ran = 100.0 * step
                    left = 90_000 - speed * ran
                    jobs.append(
                        Job(gpus=2, sizes=(1, 32), occupied={len(jobs): 16}, service_s=ran, estimate_s=ran + left)
                    )
                decision = policy.decide(cluster([Node(gpus=16)] * 2, jobs, time_s=5000.0 + step))
            sizes[fit] = [decision.allocation[row].num_gpus for row in range(2)]
        assert sizes["profiles"] == [16, 16]
        assert sizes["online"][0] <= 8
        assert sum(sizes["online"]) == 32
