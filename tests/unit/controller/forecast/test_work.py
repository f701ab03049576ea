"""One forecast of the whole cluster, from a request to its answer."""

import numpy as np
import pytest

from controller.forecast.past_runs import PastRun
from controller.forecast.request import Answer, Request, Waits, decode_answer, decode_request
from controller.forecast.tracks import Tracks
from controller.forecast.work import answer
from simulator.forecast.stand_in import STAND_IN
from tests.unit.policies.states.cluster import Job, Node, cluster

NOW_S = 10_000.0


def request(state, policy="fifo", users=None, cpu_s=100.0, ending=(), free_s=(), start_s=()):
    rows = len(state.jobs)
    return Request(
        state=state,
        policy=policy,
        journal="/nowhere",
        tracks="/nowhere",
        keys=[(str(100 + row), row) for row in range(rows)],
        users=users or ["ann"] * rows,
        names=["train"] * rows,
        limits_s=[None] * rows,
        ending=ending,
        order=[],
        cpu_s=cpu_s,
        free_s=free_s,
        start_s=start_s,
    )


def runs(service_s, user="ann", gpus=8, first=0):
    return [
        PastRun((f"9{first + at}", 9000 + at), user, "train", 9000.0 + at, 9000.0 + at + each, each, gpus)
        for at, each in enumerate(service_s)
    ]


def busy(*jobs):
    return cluster([Node(8)], [Job(gpus=8, occupied={0: 8}, service_s=60.0), *jobs], time_s=NOW_S)


def test_a_job_starts_when_the_one_before_it_is_expected_to_end() -> None:
    found = answer(request(busy(Job(gpus=8), Job(gpus=8))), runs([100.0] * 60), Tracks())

    assert found.stand_in == "" and [one.row for one in found.waits] == [1, 2]
    first, second = found.waits
    assert first.earliest_s == pytest.approx(40.0) and first.median_s == pytest.approx(40.0)
    assert second.median_s == pytest.approx(140.0)
    assert first.latest_s is not None and first.latest_s >= first.median_s


def test_a_start_waits_for_the_changeover_and_not_for_work_that_is_done() -> None:
    past = runs([100.0] * 60)
    later = answer(request(busy(Job(gpus=8)), free_s=[4.0], start_s=[3.0]), past, Tracks())
    ending = answer(request(busy(Job(gpus=8)), ending=[0], free_s=[4.0], start_s=[3.0]), past, Tracks())

    assert later.waits[0].median_s == pytest.approx(47.0)
    assert ending.waits[0].median_s == pytest.approx(7.0)


def test_another_rule_stands_in_for_a_policy_without_one() -> None:
    assert answer(request(busy(Job(gpus=8)), "contention-greedy"), [], Tracks()).stand_in == STAND_IN
    assert answer(request(busy(Job(gpus=8)), "somebody's own"), [], Tracks()).stand_in == STAND_IN


def test_another_rule_stands_in_for_one_that_takes_too_long() -> None:
    found = answer(request(busy(Job(gpus=8), Job(gpus=8)), "las", cpu_s=0.0), runs([100.0] * 60), Tracks())

    assert found.stand_in == STAND_IN and [one.row for one in found.waits] == [1, 2]
    # the ranges are those of the stand-in, not a mixture
    assert found.waits[0].median_s == pytest.approx(40.0)
    assert answer(request(busy(Job(gpus=8)), "las"), runs([100.0] * 60), Tracks()).stand_in == ""


def test_a_job_that_can_never_start_has_no_estimate() -> None:
    found = answer(request(busy(Job(gpus=16), Job(gpus=1)), "fifo-skip"), runs([100.0] * 20), Tracks())

    assert [one.row for one in found.waits] == [2]


def test_what_became_of_earlier_ranges_is_kept_and_counted() -> None:
    tracks = Tracks()
    answer(request(busy(Job(gpus=8))), runs([100.0] * 60), tracks)
    assert list(tracks.open) == [("101", 1, 0)]
    # the first job has ended, the second has started after 40 s, and a third waits
    later = cluster([Node(8)], [Job(gpus=8, occupied={0: 8}, service_s=10.0), Job(gpus=8)], time_s=NOW_S + 50.0)
    later.jobs.start_time_s[0] = NOW_S + 40.0
    next_request = request(later)
    next_request.keys[:] = [("101", 1), ("102", 2)]
    found = answer(next_request, runs([100.0] * 60), tracks)

    assert [track.wait_s for track in tracks.ended] == [40.0]
    assert (found.waits[0].held, found.waits[0].known) == (1, 1)


def test_the_start_of_a_job_that_is_gone_is_in_the_journal() -> None:
    tracks = Tracks()
    answer(request(busy(Job(gpus=8))), [], tracks)
    gone = PastRun(("101", 1), "ann", "train", NOW_S + 25.0, NOW_S + 30.0, 5.0, 8)
    answer(request(busy()), [gone], tracks)

    assert [track.wait_s for track in tracks.ended] == [25.0]


def test_users_have_their_own_run_times_in_each_pool() -> None:
    left, right = frozenset({0}), frozenset({1})
    state = cluster(
        [Node(8), Node(8)],
        [
            Job(gpus=8, occupied={0: 8}, nodes=left), Job(gpus=8, occupied={1: 8}, nodes=right),
            Job(gpus=8, nodes=left), Job(gpus=8, nodes=right),
        ],
        time_s=NOW_S,
    )  # fmt: skip
    past = [*runs([50.0] * 60), *runs([5000.0] * 60, "bob", first=100)]
    found = answer(request(state, users=["ann", "bob", "ann", "bob"]), past, Tracks())

    medians = {one.row: one.median_s for one in found.waits}
    assert medians[2] == pytest.approx(50.0) and medians[3] == pytest.approx(5000.0)


def test_a_long_queue_has_ranges_however_little_time_there_is() -> None:
    rng = np.random.default_rng(1)
    jobs = [Job(gpus=8, occupied={node: 8}, service_s=100.0) for node in range(200)]
    jobs += [Job(gpus=int(gpus)) for gpus in rng.choice([1, 2, 4, 8, 16], 2000)]
    state = cluster([Node(8)] * 200, jobs, time_s=NOW_S)
    found = answer(request(state, "backfill", cpu_s=0.05), runs(rng.lognormal(8, 2, 500).tolist()), Tracks())

    # every sample is broken off, and still every job has a range
    assert len(found.waits) == 2000
    assert all(one.earliest_s <= one.median_s <= (one.latest_s or np.inf) for one in found.waits)


def test_requests_and_answers_pass_through_the_pipe() -> None:
    one = request(busy(Job(gpus=8)), ending=[0], free_s=[2.5], start_s=[1.5])
    again = decode_request(one.encode())
    assert (again.keys, again.users, again.limits_s, again.policy) == (one.keys, one.users, one.limits_s, "fifo")
    assert (again.ending, again.free_s, again.start_s) == ([0], [2.5], [1.5])
    assert again.state.jobs.num_gpus.tolist() == [8, 8]

    found = Answer("fifo-skip", [Waits(1, 1.0, 2.0, None, 3, 4)], 5, 6)
    assert decode_answer(found.encode()) == found
