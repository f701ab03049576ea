"""Decisions become samples when the reward of the slot after them is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from policies.learned.dl2.division import Step
from policies.learned.dl2.learning.feedback import decisions as module
from policies.learned.dl2.learning.feedback.decisions import Decisions, Rows
from policies.learned.dl2.learning.feedback.reward import RewardMeter
from policies.model import ClusterState
from tests.unit.policies.states.cluster import Job, Node, cluster

SLOT_S = 100.0


def steps(*actions: int, mark: float = 1.0) -> tuple[Step, ...]:
    """Actions on states whose first number is `mark`."""
    return tuple(Step(np.full((2, 13), mark, np.float32), np.ones(7, np.bool_), action) for action in actions)


class World:
    """A cluster on which one job trains. Invariant: time goes on."""

    def __init__(self) -> None:
        self.meter = RewardMeter()
        self.decisions = Decisions(SLOT_S)

    def at(
        self, time_s: float, share: float, taken: tuple[Step, ...], *, jobs: int = 1, estimate: bool = True
    ) -> list[Rows]:
        progress = share if estimate else math.nan
        job = Job(occupied={0: 1}, training=(20.0, progress), service_s=time_s)
        state: ClusterState = cluster([Node(8)], [job] * jobs, time_s=time_s)
        self.meter.see(state)
        return self.decisions.add(state, taken, self.meter)


def test_all_samples_of_a_decision_have_the_reward_of_the_slot_after_it() -> None:
    world = World()
    assert world.at(1000.0, 0.1, steps(0, 3, 6)) == []
    assert world.at(1050.0, 0.2, steps(3, 6)) == []
    (first,) = world.at(1100.0, 0.5, steps(6, mark=7.0))
    assert first["actions"].tolist() == [0, 3, 6]
    assert first["rewards"].tolist() == pytest.approx([0.4] * 3)
    assert (first["next_seen"] == 7.0).all()
    assert not first["terminated"].any()
    # and the next one has that of its own slot; a state that comes later than its end counts for what is of the slot
    (second,) = world.at(1175.0, 0.7, steps(6, mark=8.0))
    assert second["rewards"].tolist() == pytest.approx([0.5 * 100 / 125] * 2)


def test_what_follows_is_awaited_until_the_agent_acts_or_no_job_is_left() -> None:
    world = World()
    world.at(1000.0, 0.1, steps(6))
    assert world.at(1100.0, 0.2, ()) == []
    (rows,) = world.at(1150.0, 0.9, (), jobs=0)
    assert rows["terminated"].tolist() == [True]
    assert not rows["next_seen"].any()
    # its reward is that of its slot, and not what came while the next decision was awaited
    assert rows["rewards"].tolist() == pytest.approx([0.1])
    # but not for ever
    world.at(2000.0, 0.9, steps(6))
    for number in range(1, 14):
        assert world.at(2000.0 + SLOT_S * number, 0.9, ()) == []
    assert world.decisions.left_out == 1
    assert world.at(3400.0, 0.9, steps(6)) == []


def test_a_decision_that_repeats_the_one_before_is_noted_once_in_a_slot() -> None:
    world = World()
    for at in range(10):
        world.at(1000.0 + at, 0.1, steps(0, 6, mark=float(at)))
    found = world.at(1100.0, 0.1, steps(0, 6))
    assert len(found) == 1
    world.at(1150.0, 0.1, steps(0, 6))
    assert len(world.at(1200.0, 0.1, steps(0, 6))) == 1


def test_decisions_of_unknown_reward_are_left_out_and_counted() -> None:
    world = World()
    world.at(1000.0, 0.1, steps(6))
    world.at(1050.0, 0.1, (), estimate=False)
    assert world.at(1100.0, 0.1, steps(0, 6)) == []
    assert world.decisions.left_out == 1
    # so is one that nothing followed for long
    assert world.at(1900.0, 0.1, steps(6)) == []
    assert world.decisions.left_out == 2


def test_decisions_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_DECISIONS", 3)
    monkeypatch.setattr(module, "_MOST_STEPS", 2)
    world = World()
    for at in range(5):
        world.at(1000.0 + at, 0.1, steps(at, 1, 6))
    assert world.decisions.left_out == 2
    found = world.at(1104.0, 0.1, steps(6))
    assert [rows["actions"].tolist() for rows in found] == [[2, 1], [3, 1], [4, 1]]
