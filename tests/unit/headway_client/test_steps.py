"""Waits without a clock and without a controller: what they ask, when, and when they give up."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from headway_client import (
    BusyError,
    HeadwayError,
    JobState,
    NotFoundError,
    NotPermittedError,
    NotReadyError,
    Reason,
    UnavailableError,
    WaitTimeoutError,
)
from headway_client.answers.jobs import Explanation
from headway_client.answers.preemptions import PreemptionList, PreemptionRecord
from headway_client.calls import Call
from headway_client.limits import limit_of
from headway_client.steps import APPEARS_S, Pause, wait, wait_for_preemption


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def play(steps: Generator[Any, Any, Any], clock: Clock, answers: list[Any]) -> tuple[Any, list[Call[Any]], float]:
    """The result, the calls that were made, and how long it took; errors among the answers are raised in the steps."""
    begun_s, calls, left = clock.now_s, [], list(answers)
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                clock.now_s += step.seconds
                step = steps.send(None)
                continue
            calls.append(step)
            answer = left.pop(0) if len(left) > 1 else left[0]
            step = steps.throw(answer) if isinstance(answer, HeadwayError) else steps.send(answer)
    except StopIteration as done:
        return done.value, calls, clock.now_s - begun_s


def seen(*states: str) -> list[Explanation]:
    return [Explanation(job_id="7", state=JobState(state)) for state in states]


def waiting(clock: Clock, until: Any = None, timeout_s: float | None = None) -> Any:
    return wait(7, until, timeout_s, 2.0, 10.0, clock)


def test_without_a_state_any_change_ends_the_wait() -> None:
    found, calls, took_s = play(waiting(clock := Clock()), clock, seen("waiting", "waiting", "starting"))

    assert (found.state, len(calls), took_s) == (JobState.STARTING, 3, 4.0)


@pytest.mark.parametrize("until", [JobState.RUNNING, "running", ["running"], {JobState.RUNNING, "parked"}])
def test_one_state_or_several_may_be_named(until: Any) -> None:
    found, _, took_s = play(waiting(clock := Clock(), until), clock, seen("waiting", "starting", "running"))

    assert (found.state, took_s) == (JobState.RUNNING, 4.0)


def test_a_job_that_ends_ends_every_wait() -> None:
    assert play(waiting(clock := Clock(), "running"), clock, seen("waiting", "ended"))[0].state is JobState.ENDED
    assert play(waiting(clock := Clock()), clock, seen("ended"))[0].state is JobState.ENDED


def test_a_job_of_a_moment_ago_may_be_unknown_for_a_while() -> None:
    unknown = NotFoundError("job 7 is not known")
    assert play(waiting(clock := Clock(), "running"), clock, [unknown, unknown, *seen("running")])[2] == 4.0
    clock = Clock()
    with pytest.raises(NotFoundError):
        play(waiting(clock, "running"), clock, [unknown])
    assert clock.now_s - Clock.now_s == APPEARS_S


def test_where_jobs_are_private_a_job_of_a_moment_ago_may_be_refused_for_a_while() -> None:
    refused = NotPermittedError("Headway knows no such job of ann", Reason.JOBS_PRIVATE)
    assert play(waiting(clock := Clock(), "running"), clock, [refused, refused, *seen("running")])[2] == 4.0
    # a job of another user is refused for good, and so is one that was seen before
    clock = Clock()
    with pytest.raises(NotPermittedError):
        play(waiting(clock, "running"), clock, [refused])
    assert clock.now_s - Clock.now_s == APPEARS_S
    with pytest.raises(NotPermittedError):
        play(waiting(clock := Clock(), "ended"), clock, [*seen("running"), refused])
    assert clock.now_s - Clock.now_s == 2.0


def test_a_job_that_is_forgotten_is_an_error() -> None:
    with pytest.raises(NotFoundError):
        play(waiting(clock := Clock(), "ended"), clock, [*seen("running"), NotFoundError("job 7 is not known")])


@pytest.mark.parametrize("error", [UnavailableError("gone"), NotReadyError("soon"), BusyError("many")])
def test_a_controller_may_be_away_for_so_long_each_time(error: HeadwayError) -> None:
    again = [error] * 4 + seen("running")
    assert play(waiting(clock := Clock(), "ended"), clock, [*again, *again, *seen("ended")])[2] == 20.0
    clock = Clock()
    with pytest.raises(type(error)):
        play(waiting(clock, "ended"), clock, [error])
    assert clock.now_s - Clock.now_s == 10.0


@pytest.mark.parametrize("reason", [None, Reason.USER_NOT_ACCEPTED])
def test_other_errors_end_the_wait_at_once(reason: Reason | None) -> None:
    with pytest.raises(NotPermittedError):
        play(waiting(clock := Clock()), clock, [NotPermittedError("no", reason)])
    assert clock.now_s == Clock.now_s


def test_the_time_limit_holds_for_pauses_and_calls() -> None:
    clock = Clock()
    steps = waiting(clock, "ended", timeout_s=5.0)
    first = next(steps)
    assert limit_of(first, None) == limit_of(first, 60.0) == 5.0 and limit_of(first, 1.0) == 1.0
    assert steps.send(seen("running")[0]) == Pause(2.0)
    clock.now_s += 4.5
    last = steps.send(None)
    assert limit_of(last, 60.0) == pytest.approx(0.5)
    assert steps.send(seen("running")[0]) == Pause(0.5)
    clock.now_s += 0.5
    steps.send(None)
    with pytest.raises(WaitTimeoutError, match=r"job 7 is still running after 5\.0 s"):
        steps.send(seen("running")[0])


def test_a_preemption_is_waited_for_until_it_is_not_open() -> None:
    def answers(*open_: bool) -> list[PreemptionList]:
        return [PreemptionList((PreemptionRecord(number=3, open=each),)) for each in open_]

    steps = wait_for_preemption(3, None, 0.5, 10.0, clock := Clock())
    found, calls, took_s = play(steps, clock, [*answers(True), UnavailableError("restarts"), *answers(True, False)])

    assert (found.number, found.open, len(calls), took_s) == (3, False, 4, 1.5)
