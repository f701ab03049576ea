"""Steps of the environment: by hand, and laws that hold for any actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cluster.cluster import cluster_of
from simulator.cluster.topology.gpu_links import gpu_links
from simulator.papers.rl_taps.batch import RlTapsBatch
from simulator.papers.rl_taps.jobs import jobs_of
from simulator.papers.rl_taps.options import RlTapsOptions
from simulator.papers.rl_taps.outcome import outcome, slowdowns
from simulator.traces.generators import generate
from simulator.traces.generators.rl_taps import RLTaps
from simulator.traces.trace import Trace
from tests.unit.simulator.envs.worlds import trace_of
from tests.unit.simulator.papers.rl_taps.test_speeds import LINKS, RATIO

STEP_S = 100.0


def sequence(*jobs: tuple[int, int, float]) -> Trace:
    """Jobs of vgg-vd-19 with 32 examples, as (step of arrival, GPUs, length in steps)."""
    return trace_of(
        *((step * STEP_S, gpus, length * STEP_S / 0.9) for step, gpus, length in jobs),
        models=["vgg-vd-19"] * len(jobs),
        batch_size=[32] * len(jobs),
    )


def batch_of(*traces: Trace, **options: Any) -> RlTapsBatch:
    asked = RlTapsOptions(**{"step_s": STEP_S, **options})
    batch = RlTapsBatch(asked, LINKS, len(traces))
    for row, trace in enumerate(traces):
        batch.begin(row, jobs_of(trace, asked))
    return batch


def gives(**slots: list[int]) -> Any:
    """Return an action that gives these GPUs to slots named s1, s2, ..."""
    action = np.zeros((1, 32), dtype=np.int64)
    for name, gpus in slots.items():
        action[0, gpus] = int(name[1:])
    return action


TWO = sequence((0, 1, 1), (1, 2, 2))
SLOW = 1.8 / (1 + RATIO * np.sqrt(2))
"""Speed on two GPUs alone in a rack: 0.4257."""


class TestByHand:
    """A job of one cell that needs a GPU, and one of four cells on two GPUs, a step later."""

    def test_full_preemption(self) -> None:
        batch = batch_of(TWO, slots=2)
        assert batch.step(gives(s1=[0])) == pytest.approx([0.9])
        assert batch.of.left[0, :2].tolist() == pytest.approx([0.1, 4.0])
        assert batch.slots.tolist() == [[0, 1]]
        # The second job has one of its two GPUs: its speed counts, and equation 6 takes as much.
        assert batch.step(gives(s1=[0], s2=[4])) == pytest.approx([0.9 + 0.9 - 0.9])
        assert batch.of.finish[0, 0] == 2
        assert batch.slots.tolist() == [[2, 1]]
        # Equation 5: the job that is paused costs its speed alone.
        assert batch.step(gives()) == pytest.approx([-SLOW])
        # GPUs of the empty slot stay free.
        assert batch.step(gives(s1=[5, 6], s2=[0, 1])) == pytest.approx([SLOW])
        assert batch.of.left[0, 1] == pytest.approx(4.0 - 0.9 - SLOW)
        assert batch.stops.tolist() == [1]
        # More GPUs than requested pay no penalty; a fifth of a step is lost nowhere.
        assert batch.step(gives(s2=[0, 1, 2, 3])) == pytest.approx([3.6 / (1 + RATIO * 2)])
        assert batch.stops.tolist() == [2]
        assert batch.busy.tolist() == [1 + 2 + 0 + 2 + 4]

    def test_the_end(self) -> None:
        batch = batch_of(sequence((0, 1, 1), (2, 1, 2)), max_steps=4)
        batch.step(gives(s1=[0]))
        batch.step(gives(s1=[0]))
        assert not batch.is_done[0]
        batch.step(gives(s1=[0]))
        batch.step(gives(s1=[0]))
        assert (batch.is_done.tolist(), batch.is_late.tolist()) == ([False], [True])
        # Equation 17: 2 steps for 1, and Tmax - 2 for 2.
        assert slowdowns(batch, 0).tolist() == pytest.approx([2.0, 1.0])
        figures = outcome(batch, 0)
        assert figures["mean_slowdown"] == pytest.approx(1.5)
        assert (figures["jobs"], figures["finished"]) == (2, 1)
        assert np.isnan(figures["avg_jct_s"])
        assert figures["utilization"] == pytest.approx(4 / (4 * 32))

    def test_the_charge_for_moves_and_pauses(self) -> None:
        batch = batch_of(sequence((0, 1, 8)), restart_s=STEP_S / 4)
        assert batch.step(gives(s1=[0])) == pytest.approx([0.9])
        assert batch.step(gives(s1=[0])) == pytest.approx([0.9])
        assert batch.step(gives(s1=[1])) == pytest.approx([0.9 * 0.75])
        batch.step(gives())
        assert batch.step(gives(s1=[1])) == pytest.approx([0.9 * 0.75])
        assert batch.of.left[0, 0] == pytest.approx(8 - 0.9 * 3.5)
        assert batch.stops.tolist() == [2]

    def test_without_preemption(self) -> None:
        batch = batch_of(sequence((0, 2, 1), (0, 1, 1), (0, 3, 1)), slots=2, preemption="never")
        assert (batch.slots.tolist(), batch.backlog.tolist()) == ([[0, 1]], [1])
        # Both start and leave their slots. The third waited in the backlog, and pays equation 5.
        idle = 2.7 / (1 + RATIO * np.sqrt(3))
        assert batch.step(gives(s1=[1, 2], s2=[5])) == pytest.approx([SLOW + 0.9 - idle], abs=1e-9)
        assert (batch.slots.tolist(), batch.backlog.tolist()) == ([[2, 3]], [0])
        assert batch.owner[0, :6].tolist() == [-1, 1, 1, -1, -1, 5]
        # Running jobs keep their GPUs; the third gets one that is free, and fewer than it requests costs nothing.
        before = batch.of.left[0].copy()
        speeds = 1.8 / (1 + RATIO * np.sqrt(2)), 0.9, 0.9
        assert batch.step(gives(s1=[1, 5, 9])) == pytest.approx([sum(speeds)])
        assert (before - batch.of.left[0])[[0, 2]].tolist() == pytest.approx([speeds[0], speeds[2]])
        assert batch.of.finish[0, :3].tolist() == [0, 2, 0]
        assert batch.stops.tolist() == [0]

    def test_weights_of_the_penalties(self) -> None:
        action = gives(s1=[0])
        jobs = sequence((0, 2, 4), (0, 2, 4))
        assert batch_of(jobs).step(action) == pytest.approx([0.9 - 0.9 - SLOW])
        assert batch_of(jobs, idle_weight=0.5, fewer_weight=0).step(action) == pytest.approx([0.9 - SLOW / 2])


class TestImages:
    def test_by_hand(self) -> None:
        batch = batch_of(sequence((0, 2, 3), (0, 3, 12), (1, 1, 1), (1, 1, 1)), slots=2, rows=4, backlog=6, widest=3)
        image = batch.images()[0]
        assert image.shape == (4, 32 + 2 * 3 + 2)
        assert image[:, :32].sum() == 0
        assert image[:, 32:35].tolist() == [[1, 1, 0]] * 3 + [[0, 0, 0]]
        assert image[:, 35:38].tolist() == [[1, 1, 1]] * 4
        assert image[:, 38:].sum() == 0
        batch.step(gives(s1=[4, 5, 6, 7], s2=[0]))
        image = batch.images()[0]
        # Four GPUs run 3.6 / (1 + 2 RATIO) = 0.647 cells a step: 5.35 of 6 are left, 9 steps. One: 35.1 at 0.9.
        assert image[:, :8].tolist() == [[2, 0, 0, 0, 1, 1, 1, 1]] * 4
        assert image[:, 32:35].tolist() == [[1, 1, 0]] * 3 + [[0, 0, 0]]
        assert image[:, 38:].tolist() == [[1, 1], [0, 0], [0, 0], [0, 0]]
        for _ in range(7):
            batch.step(gives(s1=[4, 5, 6, 7]))
        # 6 - 8 x 0.647 = 0.82 is left, two more steps on four GPUs, and one row without reductions.
        image = batch.images()[0]
        assert image[:, 3:5].tolist() == [[0, 1], [0, 1], [0, 0], [0, 0]]
        assert image[:, 32:35].tolist() == [[1, 1, 0]] + [[0, 0, 0]] * 3

    def test_the_backlog_is_shown_up_to_its_cells_and_no_job_is_lost(self) -> None:
        batch = batch_of(sequence(*[(0, 1, 1)] * 30), slots=2, backlog=10)
        assert batch.backlog.tolist() == [28]
        assert int(batch.images()[0][:, -1].sum()) == 10
        for _ in range(40):
            batch.step(gives(s1=[0], s2=[1]))
        assert batch.is_done.tolist() == [True]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), preemption=st.sampled_from(["full", "never"]), share=st.floats(0.0, 1.0))
def test_laws_for_any_actions(seed: int, preemption: str, share: float) -> None:
    """No work is lost or made; a GPU has one job; jobs without preemption keep their GPUs; slots are filled first come first."""
    rng = np.random.default_rng(seed)
    traces = [generate("rl-taps", RLTaps(jobs=25 + row, seed=seed + row)) for row in range(3)]
    options = {"preemption": preemption, "idle_weight": 0.0, "fewer_weight": 0.0, "slots": 4, "step_s": RLTaps().step_s}
    batch = batch_of(*traces, **options)
    held: list[dict[int, frozenset[int]]] = [{} for _ in traces]
    for _ in range(80):
        left, finish = batch.of.left.copy(), batch.of.finish.copy()
        action = rng.integers(0, 5, (3, 32)) * (rng.random((3, 32)) < share)
        slots = batch.slots.copy()
        reward = batch.step(action)
        done = left - batch.of.left
        assert (done >= 0).all()
        assert (batch.of.left >= 0).all()
        for row in range(3):
            finished = np.flatnonzero(batch.of.finish[row] != finish[row])
            assert (batch.of.left[row, finished] == 0).all()
            # A job that ends in the step does no more than what was left of it.
            assert done[row].sum() <= reward[row] + 1e-9
            if not len(finished):
                assert done[row].sum() == pytest.approx(reward[row])
            running = {int(batch.running[row, job]) for job in batch.owner[row] if job >= 0}
            assert len(running) == len({int(job) for job in batch.owner[row] if job >= 0})
            assert batch.none not in running
            if preemption == "full":
                expected = np.where(action[row] > 0, slots[row, action[row] - 1], batch.none)
                worked = set(np.flatnonzero(done[row]).tolist())
                assert worked == set(expected.tolist()) - {batch.none}
            else:
                now = {
                    int(batch.running[row, job]): frozenset(np.flatnonzero(batch.owner[row] == job).tolist())
                    for job in set(batch.owner[row].tolist()) - {-1}
                }
                for job, gpus in held[row].items():
                    assert now.get(job, gpus) == gpus
                    assert job in now or batch.of.finish[row, job]
                held[row] = now
            waiting = [job for job in batch.slots[row].tolist() if job != batch.none]
            assert all(job < batch.entered[row] for job in waiting)
            assert len(waiting) == 4 or not batch.backlog[row]


def test_a_longer_sequence_changes_nothing_for_the_others() -> None:
    short, long = (generate("rl-taps", RLTaps(jobs=jobs, seed=7)) for jobs in (20, 60))
    alone, both = batch_of(short, step_s=48.3), batch_of(short, short, step_s=48.3)
    rng = np.random.default_rng(0)
    for step in range(60):
        if step == 10:
            both.begin(1, jobs_of(long, both.options))
        action = rng.integers(0, 11, (1, 32))
        assert both.step(np.repeat(action, 2, axis=0))[0] == alone.step(action)[0]
        assert (both.images()[0] == alone.images()[0]).all()
    assert outcome(both, 0) == pytest.approx(outcome(alone, 0), nan_ok=True)


def test_a_cluster_of_other_machines() -> None:
    links = gpu_links(cluster_of({"nodes": [{"count": 2, "gpus": 8}, {"count": 1, "gpus": 2}]}).topology)
    options = RlTapsOptions(cluster="2x8")
    batch = RlTapsBatch(options, links, 1)
    batch.begin(0, jobs_of(generate("rl-taps", RLTaps(jobs=5)), options))
    assert batch.images().shape == (1, 10, 18 + 120 + 6)
    assert batch.step(np.ones((1, 18), dtype=np.int64))[0] > 0


@pytest.mark.parametrize("preemption", ["full", "never"])
def test_the_reward_of_slowdowns_adds_up_to_them(preemption: str) -> None:
    trace = generate("rl-taps", RLTaps(jobs=30, seed=4))
    batch = batch_of(trace, step_s=RLTaps().step_s, reward="slowdown", preemption=preemption, max_steps=90)
    rng = np.random.default_rng(0)
    total = 0.0
    while not batch.is_done[0] and not batch.is_late[0]:
        total += batch.step(rng.integers(0, 11, (1, 32)))[0]
    assert total == pytest.approx(-slowdowns(batch, 0).sum())
