"""The contention threshold: jobs that are slow for too long, and which of the jobs that slow each other moves or stays."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.contention.threshold import Advice, Judgement, Slow, judge_case, still_slow
from controller.preempt.preemptibility import Preemptibility
from controller.profiles.current import FRESH_WINDOWS, Contention
from controller.profiles.windows import RunKey
from controller.slurm.model.job import Phase, SlurmJob
from controller.state.preemption import PreemptionMethod, Stage
from tests.unit.controller.examples.build import NOW_S, job, node, request
from tests.unit.controller.examples.slowed import ALWAYS, WINDOW_S, case, known, pace, preemption, settings, training

ONE, TWO, THREE = (RunKey(number, 0) for number in (1, 2, 3))
LONG = Slow(NOW_S - 200, NOW_S)
BOTH = {ONE: LONG, TWO: LONG}
PAIR = (training(1, "n1 n2"), training(2, "n1 n2"))
PACES = known(pace(1, 1.9, 2), pace(2, 2.1, 1))


# --- who is slow


def passes(values: list[float | None], **changes: Any) -> list[float]:
    """Measured seconds for which run 1 has been slow, after each window; None: that window says nothing."""
    limits = settings(**changes)
    slow: dict[RunKey, Slow] = {}
    found = []
    for number, value in enumerate(values):
        start_s = NOW_S + number * WINDOW_S
        item = pace(1, 9.0 if value is None else value, 2, start_s=start_s, confidence=0.49 if value is None else 0.5)
        slow = still_slow(slow, known(item), limits, start_s + WINDOW_S, WINDOW_S)
        found.append(slow[ONE].lasted_s if ONE in slow else 0.0)
    return found


def test_it_begins_at_the_threshold_and_ends_below_clear() -> None:
    assert passes([1.49, 1.5, 1.3, 1.2, 1.19, 1.3, 1.6]) == [0, 30, 60, 90, 0, 0, 30]


def test_windows_without_a_sensitivity_neither_begin_nor_end_slowness() -> None:
    assert passes([None, None]) == [0, 0]
    assert passes([1.6, None, None, 1.3]) == [30, 30, 30, 120]


def test_one_number_alone_is_not_sustained_however_old_it_grows() -> None:
    once = known(pace(1, 3.0, 2))
    slow: dict[RunKey, Slow] = {}
    for later_s in range(0, 150, 2):
        slow = still_slow(slow, once, settings(), NOW_S + later_s, WINDOW_S)
        assert slow[ONE].lasted_s == WINDOW_S


def test_a_run_of_which_nothing_is_known_any_more_is_forgotten() -> None:
    slow = {ONE: Slow(NOW_S - 300, NOW_S)}
    assert ONE in still_slow(slow, {}, settings(), NOW_S + FRESH_WINDOWS * WINDOW_S, WINDOW_S)
    assert ONE not in still_slow(slow, {}, settings(), NOW_S + FRESH_WINDOWS * WINDOW_S + 1, WINDOW_S)


def test_what_is_not_known_is_not_slow() -> None:
    unknown = Contention(pace(1, 2.0, 2).window, None)
    assert math.isnan(unknown.value)
    assert still_slow({}, known(unknown), settings(), NOW_S, WINDOW_S) == {}


@given(values=st.lists(st.floats(1.21, 1.49), min_size=1, max_size=40), above=st.booleans())
def test_noise_between_the_two_changes_nothing(values: list[float], above: bool) -> None:
    start = [1.5 if above else 1.0]
    assert [lasted_s > 0 for lasted_s in passes([*start, *values])] == [above] * (len(values) + 1)


@given(st.lists(st.one_of(st.none(), st.floats(0.9, 3.0)), max_size=60))
def test_it_changes_only_by_crossing_both(values: list[float | None]) -> None:
    slow, silent = False, 0
    for value, lasted_s in zip(values, passes(values), strict=True):
        slow = slow and silent < FRESH_WINDOWS
        silent = silent + 1 if value is None else 0
        if value is not None and not 1.2 <= value < 1.5:
            slow = value >= 1.5
        assert (lasted_s > 0) == slow


# --- who moves


def moved(found: Judgement) -> list[str]:
    return [advice.job.key.job_id for advice in found.advice]


def only(found: Judgement) -> Advice:
    (advice,) = found.advice
    return advice


def test_of_two_jobs_that_slow_each_other_down_the_slower_one_leaves_the_shared_nodes() -> None:
    found = judge_case(case(PAIR, PACES), BOTH)
    advice = only(found)
    assert (advice.job.key.job_id, advice.place.nodes, advice.mode) == ("2", ("n3", "n4"), "automatic")
    assert advice.place.constraint.avoid == {"n1", "n2"}
    assert advice.why == (
        "it trains at 3 steps/s, 2.10 times slower than alone (confidence 90%), for 3 min now, on n1,n2 beside job 1; "
        "n3,n4 are free"
    )
    assert found.stays == {}


def test_no_job_moves_before_the_slowdown_has_lasted() -> None:
    just = Slow(NOW_S - 119, NOW_S)
    assert judge_case(case(PAIR, PACES), {ONE: just, TWO: just}) == Judgement()
    assert moved(judge_case(case(PAIR, PACES), {ONE: just, TWO: Slow(NOW_S - 120, NOW_S)})) == ["2"]


def test_a_job_in_a_partition_without_preemption_does_not_move() -> None:
    assert judge_case(case(PAIR, PACES, preemption="off"), BOTH) == Judgement()
    assert only(judge_case(case(PAIR, PACES, preemption="advise"), BOTH)).mode == "advise"
    parts = {"dl": "advise", "cpu": "automatic"}
    assert only(judge_case(case(PAIR, PACES, preemption="off", preemption_partitions=parts), BOTH)).mode == "advise"


def test_the_smaller_one_moves_even_if_less_affected() -> None:
    pair = (training(1, "n1 n2", gpus=1), PAIR[1])
    advice = only(judge_case(case(pair, PACES), BOTH))
    assert advice.job.key.job_id == "1"
    assert "it trains at 3 steps/s, 1.90 times slower" in advice.why
    # also one that is not in need of it itself, but in another's way
    advice = only(judge_case(case(pair, PACES), {TWO: LONG}))
    assert advice.job.key.job_id == "1"
    assert "job 2 trains at 3 steps/s, 2.10 times slower" in advice.why
    assert "this one, 1.90 times slower, shares resources with it on n1,n2 beside job 2" in advice.why


def test_between_equals_the_younger_then_the_lower_number() -> None:
    same = known(pace(1, 2.01, 2), pace(2, 2.02, 1))
    assert moved(judge_case(case(PAIR, same), BOTH)) == ["1"]
    younger = (PAIR[0], training(2, "n1 n2", since=NOW_S - 2000))
    assert moved(judge_case(case(younger, same), BOTH)) == ["2"]


def test_a_job_that_was_advised_before_is_chosen_again_while_the_advice_is_valid() -> None:
    assert moved(judge_case(case(PAIR, PACES), BOTH, advised=[ONE])) == ["1"]
    assert moved(judge_case(case(PAIR, PACES, history=[preemption(1, 1, NOW_S - 50)]), BOTH, advised=[ONE])) == ["2"]


def test_jobs_that_report_their_saves_move_before_jobs_that_are_signalled() -> None:
    def ways(candidate: SlurmJob) -> Preemptibility:
        return Preemptibility(PreemptionMethod.SIGNAL) if candidate.raw_id == 2 else ALWAYS

    assert moved(judge_case(case(PAIR, PACES, preemptibility=ways), BOTH)) == ["1"]


def test_a_job_that_is_not_preemptible_stays_and_the_other_moves() -> None:
    def never(candidate: SlurmJob) -> Preemptibility:
        return Preemptibility(PreemptionMethod.NONE, "cannot come back") if candidate.raw_id == 2 else ALWAYS

    assert moved(judge_case(case(PAIR, PACES, preemptibility=never), BOTH)) == ["1"]
    found = judge_case(
        case(PAIR, PACES, preemptibility=lambda _: Preemptibility(PreemptionMethod.NONE, "cannot come back")), BOTH
    )
    words = "job 2 cannot come back; job 1 cannot come back"
    assert found == Judgement((), {TWO: words, ONE: words})


def test_a_job_that_is_hardly_disturbed_is_not_moved_for_another_s_sake() -> None:
    def never(candidate: SlurmJob) -> Preemptibility:
        return Preemptibility(PreemptionMethod.NONE, "cannot come back") if candidate.raw_id == 2 else ALWAYS

    paces = known(pace(1, 1.19, 2), pace(2, 2.1, 1))
    assert judge_case(case(PAIR, paces, preemptibility=never), {TWO: LONG}) == Judgement(
        (), {TWO: "job 2 cannot come back"}
    )
    nearly = known(pace(1, 1.2, 2), pace(2, 2.1, 1))
    assert moved(judge_case(case(PAIR, nearly, preemptibility=never), {TWO: LONG})) == ["1"]


@pytest.mark.parametrize("stage", [Stage.ASKED, Stage.SAVED, Stage.STOPPED])
def test_while_one_is_about_to_go_the_others_wait(stage: Stage) -> None:
    found = judge_case(case(PAIR, PACES, history=[preemption(1, 1, NOW_S - 5, stage)]), BOTH)
    assert found.advice == ()
    assert set(found.stays.values()) == {"job 1 is being preempted; the others are measured without it first"}


def test_only_one_of_a_circle_moves() -> None:
    # three jobs, of which two are neighbours of the third only
    three = (training(1, "n1 n2"), training(2, "n2 n3"), training(3, "n3 n4"))
    paces = known(
        pace(1, 1.6, 2), pace(2, 2.4, 1, 3, nodes=("n2", "n3")), pace(3, 1.7, 2, nodes=("n3", "n4"))
    )  # fmt: skip
    advice = only(judge_case(case(three, paces, nodes=8), {ONE: LONG, TWO: LONG, THREE: LONG}))
    assert (advice.job.key.job_id, advice.place.nodes) == ("2", ("n5", "n6"))
    assert advice.place.constraint.avoid == {"n1", "n2", "n3", "n4"}


def test_two_groups_do_not_get_the_same_place() -> None:
    four = (*PAIR, training(3, "n3 n4"), training(4, "n3 n4"))
    paces = known(*PACES.values(), pace(3, 3.0, 4, nodes=("n3", "n4")), pace(4, 2.0, 3, nodes=("n3", "n4")))
    slow = dict.fromkeys((RunKey(number, 0) for number in range(1, 5)), LONG)
    # the slowest job comes first
    found = judge_case(case(four, paces, nodes=6), slow)
    assert [(advice.job.key.job_id, advice.place.nodes) for advice in found.advice] == [("3", ("n5", "n6"))]
    assert "job 2 fits on no free nodes now" in found.stays[TWO]
    found = judge_case(case(four, paces, nodes=8), slow)
    assert [(advice.job.key.job_id, advice.place.nodes) for advice in found.advice] == [
        ("3", ("n5", "n6")),
        ("2", ("n7", "n8")),
    ]
    # and no more than the budget allows
    found = judge_case(case(four, paces, nodes=8, preemption_budget_per_hour=1), slow)
    assert moved(found) == ["3"]
    assert "preemption_budget_per_hour is 1" in found.stays[TWO]


def test_without_free_places_all_jobs_stay() -> None:
    found = judge_case(case((*PAIR, training(3, "n3 n4")), PACES), BOTH)
    assert found.advice == ()
    assert found.stays[TWO] == (
        "job 2 fits on no free nodes now where it would slow down no other job; "
        "job 1 fits on no free nodes now where it would slow down no other job"
    )


def test_waiting_jobs_are_not_passed() -> None:
    waiting = job("9", request=request(gpus_per_node=8, min_nodes=2))
    assert judge_case(case((*PAIR, waiting), PACES), BOTH).advice == ()


def test_a_job_that_ends_soon_is_not_moved() -> None:
    # job 2 has run for 3000 s of 3200: it stays, and job 1 stays because job 2 goes
    ending = (PAIR[0], training(2, "n1 n2", time_limit_s=3200))
    found = judge_case(case(ending, PACES), BOTH)
    assert found.stays[ONE] == "job 2 is expected to end soon; job 1 has only neighbours that are expected to end soon"


def test_others_that_report_nothing_are_escaped_from() -> None:
    paces = known(pace(1, 2.0, 77))
    silent = training(77, "n1 n2", partition="other")
    advice = only(judge_case(case((PAIR[0], silent), paces), {ONE: LONG}))
    assert (advice.job.key.job_id, advice.place.nodes) == ("1", ("n3", "n4"))


def test_links_between_nodes_are_escaped_from_by_leaving_all_nodes() -> None:
    paces = known(pace(1, 2.0, 2), pace(2, 2.0, 1, nodes=("n3", "n4")))
    advice = only(judge_case(case((PAIR[0], training(2, "n3 n4")), paces, nodes=6), BOTH))
    assert advice.place.constraint.avoid == {"n1", "n2", "n3", "n4"}


def test_a_place_behind_the_same_uplink_is_none() -> None:
    # given racks of three nodes, and two jobs that cross the uplinks of the first two
    def links(names: Collection[str]) -> Collection[str]:
        racks = {(int(name[1:]) - 1) // 3 for name in names}
        return {*names, *(f"uplink of s{rack}" for rack in racks if len(racks) > 1)}

    pair = (training(1, "n1 n4"), training(2, "n2 n5"))
    paces = known(pace(1, 2.0, 2, nodes=("n1", "n4")), pace(2, 2.0, 1, nodes=("n2", "n5")))
    # then n3 and n6 are no place, and others are where there are any
    assert judge_case(case(pair, paces, nodes=6, links=links), BOTH).advice == ()
    assert only(judge_case(case(pair, paces, nodes=6), BOTH)).place.nodes == ("n3", "n6")
    advice = only(judge_case(case(pair, paces, nodes=9, links=links), BOTH))
    assert advice.place.nodes == ("n7", "n8")
    assert advice.place.constraint.avoid >= {"n3", "n6"}


def test_windows_of_an_earlier_run_do_not_count() -> None:
    again = (replace(PAIR[0], restarts=1), PAIR[1])
    assert moved(judge_case(case(again, known(pace(1, 2.0, 2)), nodes=6), {ONE: LONG})) == []


def test_a_job_that_is_ending_is_not_moved() -> None:
    ending = (PAIR[0], training(2, "n1 n2", phase=Phase.COMPLETING))
    assert moved(judge_case(case(ending, PACES), BOTH)) == ["1"]


jobs_of = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 8), st.floats(0.9, 3.0), st.floats(0, 1)), max_size=7)


@given(
    jobs=jobs_of, budget=st.integers(0, 3), young=st.sets(st.integers(0, 6)), lasted_s=st.integers(60, 200)
)  # fmt: skip
def test_with_any_measurements_no_bound_is_exceeded_and_all_places_are_free(
    jobs: list[tuple[int, int, float, float]], budget: int, young: set[int], lasted_s: int
) -> None:
    # given jobs on two neighbouring nodes of eight each, and all near each other that share a node
    running = {
        number: training(number, f"n{at + 1} n{at + 2}", gpus=1, since=NOW_S - (200 if number in young else 3000))
        for number, (at, *_) in enumerate(jobs)
    }
    on = {number: {share.node for share in item.allocated} for number, item in running.items()}
    paces = known(
        *(
            pace(number, value, *(other for other in on if other != number and on[other] & on[number]),
                 confidence=sure, nodes=tuple(sorted(on[number])))
            for number, (_, _, value, sure) in enumerate(jobs)
        )
    )  # fmt: skip
    slow = {
        run: Slow(NOW_S - lasted_s, NOW_S)
        for run, item in paces.items()
        if item.value >= 1.2 and item.confidence >= 0.5
    }
    nodes = tuple(node(f"n{number}") for number in range(1, 9))
    judged = judge_case(case(running.values(), paces, nodes=nodes, preemption_budget_per_hour=budget), slow)

    # then what moves is within all bounds
    assert len(judged.advice) <= budget
    taken: set[str] = set()
    for advice in judged.advice:
        number = advice.run.job_id
        assert number not in young
        assert lasted_s >= 120
        assert paces[advice.run].value >= 1.2
        assert paces[advice.run].confidence >= 0.5
        # to nodes where nobody is that communicates, nor anybody else who moves, and off those that it shares
        others = {name for other, names in on.items() if other != number for name in names}
        assert not set(advice.place.nodes) & (others | taken)
        assert not set(advice.place.nodes) & advice.place.constraint.avoid
        assert advice.place.constraint.avoid >= on[number] & others
        taken |= set(advice.place.nodes)
    # and no two of them were neighbours
    runs = {advice.run.job_id for advice in judged.advice}
    assert all(not (on[a] & on[b]) for a in runs for b in runs if a != b)
    assert not runs & {run.job_id for run in judged.stays}
