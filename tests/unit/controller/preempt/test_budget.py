"""Bounds of preemption: none is ever exceeded, and no job is stopped that has only just begun or is in its cool-down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.preempt.budget import HOUR_S, PreemptionBudget, may_be_preempted, mode_of, reach_s
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.windows import RunKey
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import Cause, Preemption, PreemptionMethod, Stage
from tests.unit.controller.examples.build import NOW_S, job
from tests.unit.controller.examples.slowed import ALWAYS, preemption, settings, training

OLD = NOW_S - 3000
JOB = training(7, "n1")
ENDS = (Stage.RESUMED, Stage.CALLED_OFF, Stage.OVER)


@pytest.mark.parametrize(
    ("whole", "parts", "partition", "mode"),
    [
        ("off", {}, "dl", "off"),
        ("automatic", {}, "dl", "automatic"),
        ("off", {"dl": "advise"}, "dl", "advise"),
        ("automatic", {"dl": "off"}, "dl", "off"),
        ("automatic", {"cpu": "advise"}, "dl,cpu", "advise"),
        ("off", {"cpu": "automatic"}, "dl,cpu", "off"),
    ],
)
def test_a_partitions_mode_takes_precedence(whole: str, parts: dict[str, str], partition: str, mode: str) -> None:
    assert mode_of(settings(preemption=whole, preemption_partitions=parts), partition) == mode


def always(_: SlurmJob) -> Preemptibility:
    return ALWAYS


def allowance(*history: Preemption, **changes: object) -> PreemptionBudget:
    return PreemptionBudget(settings(**changes), history, NOW_S)


def test_a_job_that_has_run_long_enough_and_was_left_alone_may_be_stopped() -> None:
    assert allowance().refusal(JOB) == ""
    assert allowance().may_be_preempted(JOB, always)
    assert not allowance(preemption="advise").may_be_preempted(JOB, always)
    assert not allowance().may_be_preempted(JOB, lambda _: Preemptibility(PreemptionMethod.NONE, "cannot come back"))


def test_the_runs_that_policies_may_stop() -> None:
    again = training(8, "n2", restarts=2)
    jobs = [JOB, again, training(9, "n3", since=NOW_S - 10), training(10, "n3", partition="cpu"), job("11", raw_id=11)]
    history = [preemption(1, 7, NOW_S - 60)]
    parts = settings(preemption_partitions={"cpu": "off"})
    assert may_be_preempted(jobs, parts, [], always, NOW_S) == {RunKey(7, 0), RunKey(8, 2)}
    assert may_be_preempted(jobs, parts, history, always, NOW_S) == {RunKey(8, 2)}
    # no job is checked where nothing is automatic
    assert (
        may_be_preempted(jobs, settings(preemption="advise"), [], lambda _: pytest.fail("asked"), NOW_S) == frozenset()
    )


@pytest.mark.parametrize(
    ("stopped", "said"),
    [
        (training(7, "n1", since=NOW_S - 299), "has run for 299 s only (preemption_min_run_s is 300 s)"),
        (training(7, "n1", phase=Phase.COMPLETING), "does not run"),
        (job("7", raw_id=7), "does not run"),
        (training(7, "n1", since=NOW_S - 300), ""),
    ],
)
def test_a_job_that_has_just_begun_is_not_stopped(stopped: object, said: str) -> None:
    assert allowance().refusal(stopped) == said  # type: ignore[arg-type]


@pytest.mark.parametrize("stage", [Stage.ASKED, Stage.SAVED, Stage.STOPPED])
def test_a_job_that_is_being_stopped_is_not_stopped_again(stage: Stage) -> None:
    assert allowance(preemption(1, 7, NOW_S - 5, stage)).refusal(JOB) == "is being preempted"


def test_a_cool_down_begins_when_the_job_runs_again() -> None:
    back = preemption(1, 7, OLD, Stage.STARTED, stopped_s=OLD + 10, started_s=NOW_S - 400)
    assert "not preempted again for another 3 min" in allowance(back).refusal(JOB)
    assert allowance(back, preemption_cooldown_s=400).refusal(JOB) == ""


@pytest.mark.parametrize(("called_off", "rests_s"), [(1, 600), (2, 1200), (3, 2400), (9, 600 * 32)])
def test_each_preemption_that_is_called_off_doubles_the_cool_down(called_off: int, rests_s: float) -> None:
    history = [preemption(number, 7, NOW_S - 100, Stage.CALLED_OFF, ended_s=NOW_S) for number in range(called_off)]
    assert allowance(*history).rests_until_s(7) == NOW_S + rests_s
    # one by a policy that went through makes good for those before it
    again = [*history, preemption(99, 7, NOW_S, cause=Cause.POLICY, ended_s=NOW_S)]
    assert allowance(*again).rests_until_s(7) == NOW_S + 600
    assert allowance(*again, preemption(100, 7, NOW_S, Stage.CALLED_OFF, ended_s=NOW_S)).rests_until_s(7) == NOW_S + 600


@pytest.mark.parametrize(("moves", "rests_s"), [(1, 600), (2, 1200), (3, 2400), (9, 600 * 32)])
def test_each_further_move_by_the_threshold_doubles_the_rest(moves: int, rests_s: float) -> None:
    history = [preemption(number, 7, NOW_S - 9000 + 900 * number) for number in range(moves)]
    ended_s = history[-1].ended_s
    assert ended_s is not None
    assert allowance(*history).rests_until_s(7) == ended_s + rests_s
    # one by hand ends the row
    by_hand = preemption(99, 7, NOW_S - 50, cause=Cause.OPERATOR, ended_s=NOW_S)
    assert allowance(*history, by_hand).rests_until_s(7) == NOW_S + 600


@pytest.mark.parametrize("ahead_s", [60.0, 1800.0, HOUR_S, 86400.0, 1e9])
def test_preemptions_from_a_clock_that_was_ahead_do_not_count_for_ever(ahead_s: float) -> None:
    # given a job whose preemptions, and a cluster whose budget, were spent before the clock was set back
    past = [preemption(number, 7, NOW_S + ahead_s, ended_s=NOW_S + ahead_s + 10) for number in (1, 2)]
    limits = settings(preemption_budget_per_hour=2, preemption_moves_per_hour=2, preemption_cooldown_s=600)

    def bounds(later_s: float) -> PreemptionBudget:
        return PreemptionBudget(limits, past, NOW_S + later_s)

    # then both count while they may be of the last hour, and never for longer than two hours in a row
    other = training(8, "n2")
    assert (bounds(0).refusal(other) == "") is (ahead_s >= HOUR_S)
    assert (bounds(0).refusal(JOB) == "") is (ahead_s >= HOUR_S)
    for each in (other, JOB):
        blocked = [later_s for later_s in range(0, 4 * 3600, 60) if bounds(later_s).refusal(each)]
        assert len(blocked) * 60 <= 2 * HOUR_S


def test_a_cool_down_from_a_clock_that_was_ahead_ends() -> None:
    ahead = preemption(1, 7, NOW_S + 86400, cause=Cause.OPERATOR, ended_s=NOW_S + 86400)
    assert allowance(ahead).refusal(JOB) == ""
    little = preemption(1, 7, NOW_S + 60, cause=Cause.OPERATOR, ended_s=NOW_S + 60)
    assert "not preempted again for another 11 min" in allowance(little).refusal(JOB)


def test_what_an_operator_stops_counts_for_the_job_but_not_for_the_cluster() -> None:
    by_hand = [preemption(number, 7, NOW_S - 2000, cause=Cause.OPERATOR) for number in range(2)]
    assert allowance(*by_hand).refusal(JOB) == "was preempted 2 times within an hour (preemption_moves_per_hour is 2)"
    other = training(8, "n1")
    assert allowance(*by_hand, preemption_budget_per_hour=1).refusal(other) == ""
    spent = preemption(3, 9, NOW_S - 3000, cause=Cause.POLICY)
    assert "preemption_budget_per_hour is 1" in allowance(*by_hand, spent, preemption_budget_per_hour=1).refusal(other)


def test_preemptions_are_looked_up_as_far_back_as_they_matter() -> None:
    assert reach_s(settings()) == 600 * 32
    assert reach_s(settings(preemption_cooldown_s=1)) == HOUR_S


@given(
    wishes=st.lists(st.tuples(st.integers(1, 5), st.floats(0, 900), st.sampled_from(ENDS)), max_size=60),
    budget=st.integers(0, 5),
    moves=st.integers(0, 3),
    cooldown_s=st.sampled_from([0.0, 60.0, 600.0]),
)
def test_no_bound_is_exceeded_in_any_hour(
    wishes: list[tuple[int, float, Stage]], budget: int, moves: int, cooldown_s: float
) -> None:
    limits = settings(
        preemption_budget_per_hour=budget, preemption_moves_per_hour=moves, preemption_cooldown_s=cooldown_s,
        preemption_min_run_s=200,
    )  # fmt: skip
    done: list[Preemption] = []
    began_s = dict.fromkeys(range(1, 6), NOW_S)
    now_s = NOW_S
    for raw_id, later_s, stage in wishes:
        now_s += later_s
        candidate = training(raw_id, "n1", since=began_s[raw_id])
        if PreemptionBudget(limits, done, now_s).may_be_preempted(candidate, always):
            assert now_s - began_s[raw_id] >= 200
            done.append(preemption(len(done), raw_id, now_s, stage, ended_s=now_s + 20))
            began_s[raw_id] = now_s if stage is Stage.CALLED_OFF else now_s + 20
    for first in done:
        hour = [item for item in done if first.asked_s <= item.asked_s < first.asked_s + HOUR_S]
        assert len(hour) <= budget
        assert sum(item.raw_id == first.raw_id for item in hour) <= moves
        of_job = [item.asked_s for item in done if item.raw_id == first.raw_id and item.asked_s > first.asked_s]
        assert all(asked_s >= first.asked_s + 20 + cooldown_s for asked_s in of_job)


@given(number=st.integers(0, 30), budget=st.integers(0, 10))
def test_nor_by_several_at_once(number: int, budget: int) -> None:
    bounds = allowance(preemption_budget_per_hour=budget)
    taken = 0
    for raw_id in range(number):
        candidate = training(raw_id, "n1")
        if not bounds.refusal(candidate):
            bounds.take(candidate)
            taken += 1
    assert taken == min(number, budget)


def test_what_is_left_of_the_budget_leaves_out_orders_of_operators_and_old_preemptions() -> None:
    history = [
        preemption(1, 8, NOW_S - 60),
        preemption(2, 9, NOW_S - 60, cause=Cause.OPERATOR),
        preemption(3, 8, OLD - HOUR_S),
    ]
    bounds = allowance(*history, preemption_budget_per_hour=2)
    assert bounds.left == 1
    bounds.take(JOB)
    bounds.take(training(9, "n2"))
    assert bounds.left == 0


def test_a_job_s_own_bounds_hold_whatever_the_budget_has_left() -> None:
    bounds = allowance(preemption(1, 8, NOW_S - 60), preemption_budget_per_hour=1, preemption_moves_per_hour=1)
    assert "preemption_budget_per_hour is 1" in bounds.refusal(JOB)
    assert bounds.own_refusal(JOB) == ""
    assert "not preempted again for another 9 min" in bounds.own_refusal(training(8, "n2"))
    assert "has run for 10 s only" in bounds.own_refusal(training(9, "n3", since=NOW_S - 10))


def test_after_the_clock_was_set_back_by_years_the_budget_is_not_spent_for_years() -> None:
    later = [preemption(number, 7, NOW_S + 300 * 86400 + number) for number in (1, 2)]
    bounds = allowance(*later, preemption_budget_per_hour=2, preemption_moves_per_hour=1)
    assert (bounds.left, bounds.refusal(JOB)) == (2, "")
    # one that is under way counts all the same
    assert allowance(replace(later[0], stage=Stage.ASKED, ended_s=None)).refusal(JOB) == "is being preempted"
