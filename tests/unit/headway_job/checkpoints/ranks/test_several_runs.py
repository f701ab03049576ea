"""Several runs of one process that train at the same time: a request is answered only when all of them have saved."""

from __future__ import annotations

import threading
import time
from typing import Any
from unittest.mock import patch

import pytest

pytest.importorskip("torch")
from headway_job.checkpoints.catalog import Catalog
from headway_job.checkpoints.ranks.pause import PauseControl, SaveOutcome
from headway_job.checkpoints.run import Run
from headway_job.hook.save_requests import SaveRequests

from tests.unit.headway_job.checkpoints.ranks.interleaving import WORLD, Group, _Meeting, _Objects, _Store

_LONG_S = 60.0
_STEPS = 600
"""Number of steps, each of a millisecond: the ranks exchange what they know about ten times in a second."""


class Process:
    """A process with the runs of two networks, which it trains in turns."""

    def __init__(self) -> None:
        self.paused = threading.Event()
        self.requests = SaveRequests(keep_client_running=self.paused.set)
        self.requests.set_connected(connected=True)
        self.first, self.second = (PauseControl(self.requests, 0, 1, lambda: None) for _ in range(2))
        for run in (self.first, self.second):
            run.register(0)
        for run in (self.first, self.second):
            run.stepped = True

    def save(self, run: PauseControl, step: int, problem: str = "") -> None:
        run.save_began(step, *run.terms())
        run.save_ended(SaveOutcome(step, problem))
        run.pause_training()

    def answered_in_the_pause(self) -> tuple[list[dict[str, Any] | None], threading.Thread]:
        """Take the answer in another thread once the training pauses, and cancel the request then."""
        answers: list[dict[str, Any] | None] = []

        def agent() -> None:
            if self.paused.wait(_LONG_S):
                answers.append(self.requests.answer())
                self.requests.receive_go_on("p1.1")

        other = threading.Thread(target=agent)
        other.start()
        return answers, other


def test_the_answer_waits_for_the_saves_of_all_runs_and_the_training_pauses_after_the_last() -> None:
    process = Process()
    process.requests.receive_save("p1.1", _LONG_S)
    assert (process.first.wanted, process.second.wanted) == (True, True)

    process.save(process.first, 30)  # returns: the training goes on to the other run

    assert process.requests.answer() is None
    assert not process.paused.is_set()
    answers, other = process.answered_in_the_pause()
    process.save(process.second, 31)
    other.join()
    assert [(found["complete"], found["step"]) for found in answers if found] == [(True, 31)]
    assert (process.first.waits, process.second.waits) == (False, False)
    assert (process.first.wanted, process.second.wanted) == (False, False)


def test_if_one_of_the_saves_fails_the_answer_is_its_problem() -> None:
    process = Process()
    process.requests.receive_save("p1.1", _LONG_S)
    process.save(process.first, 30, "could not write: no room")
    answer = process.requests.answer()
    assert answer is not None
    assert (answer["complete"], answer["problem"]) == (False, "could not write: no room")


def test_without_the_save_of_another_run_in_time_the_answer_says_that_the_training_went_on() -> None:
    process = Process()
    process.requests.receive_save("p1.1", 0.0)
    process.save(process.first, 30)
    while process.first.waits:
        process.first.settle()  # at its next steps
    answer = process.requests.answer()
    assert answer is not None
    assert (answer["complete"], answer["problem"]) == (False, "it has continued to train since then")


def test_a_request_that_is_cancelled_before_the_last_save_pauses_nothing() -> None:
    process = Process()
    process.requests.receive_save("p1.1", _LONG_S)
    process.save(process.first, 30)
    process.requests.receive_go_on("p1.1")
    process.first.settle()
    process.save(process.second, 31)
    assert not process.first.waits
    assert not process.paused.is_set()


def test_a_run_that_has_ended_or_was_left_is_not_waited_for() -> None:
    process = Process()
    process.first.close()
    newest = PauseControl(process.requests, 0, 1, lambda: None)
    newest.register(0)  # the second makes no more steps from here on
    process.requests.receive_save("p1.1", _LONG_S)
    answers, other = process.answered_in_the_pause()
    newest.stepped = True
    process.save(newest, 5)
    other.join()
    assert [found["complete"] for found in answers if found] == [True]


def test_after_the_end_of_the_newest_run_an_older_one_is_saved_once_it_trains_again() -> None:
    process = Process()
    process.second.close()
    process.requests.receive_save("p1.1", _LONG_S)
    assert process.first.wanted
    state = process.requests.state()
    assert state is not None and state["open"]


def test_a_run_that_saves_no_more_makes_every_answer_a_problem() -> None:
    process = Process()
    process.first.stop_saving("the run saves no more: another rank is gone")
    state = process.requests.state()
    assert state is not None and not state["open"]
    process.requests.receive_save("p1.1", _LONG_S)
    answer = process.requests.answer()
    assert answer is not None
    assert (answer["complete"], answer["problem"]) == (False, "the run saves no more: another rank is gone")


def run_of(group: Group) -> Run:
    """Return a run whose store and objects are always well."""
    store = _Store(lambda: False, lambda: None)
    return Run(group, Catalog(store, 2), _Objects(), None, None, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("second_every", [1, 3])
def test_ranks_with_two_runs_pause_together_after_both_saves(second_every: int) -> None:
    here = threading.local()
    paused = [threading.Event() for _ in range(WORLD)]
    requests = [SaveRequests(keep_client_running=event.set) for event in paused]
    meetings = [(_Meeting(), _Meeting()) for _ in range(2)]
    barrier = threading.Barrier(WORLD, timeout=_LONG_S)
    asked, reached = threading.Event(), [threading.Event() for _ in range(WORLD)]
    made = [0] * WORLD
    errors: list[BaseException] = []

    def train(rank: int) -> None:
        here.rank = rank
        try:
            requests[rank].set_connected(connected=True)
            runs = [run_of(Group(rank, *pair, lambda: None)) for pair in meetings]
            for run in runs:
                run._pauses.register(0)
            for step in range(_STEPS):
                if step == 5:
                    reached[rank].set()
                    asked.wait(_LONG_S)
                time.sleep(0.001)
                barrier.wait()  # as the all-reduce of the gradients: no rank is ahead of the others
                runs[0].step()
                if step % second_every == 0:
                    runs[1].step()
                made[rank] += 1
            barrier.wait()
            for run in runs:
                run.close()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)
            barrier.abort()

    with patch("headway_job.hook.process.save_requests", lambda: requests[here.rank]):
        threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(WORLD)]
        for thread in threads:
            thread.start()
        for event in reached:
            assert event.wait(_LONG_S), errors
        requests[0].receive_save("p1.1", _LONG_S)  # only one rank has it yet
        asked.set()
        for event in paused:
            assert event.wait(_LONG_S), errors
        requests[1].receive_save("p1.1", _LONG_S)
        for one in requests:
            while (answer := one.answer()) is None:
                threading.Event().wait(0.01)
            assert answer["complete"], answer
            assert all(run.state()["saved"] > 0 for run in one.registered())
        for one in requests:
            one.receive_go_on("p1.1")
        for thread in threads:
            thread.join(_LONG_S)
            assert not thread.is_alive()
    assert errors == []
    assert made == [_STEPS] * WORLD
