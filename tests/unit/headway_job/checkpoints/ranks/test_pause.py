"""The pauses of one rank: requests in any order, and their answers."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from headway_job import job_log
from headway_job.checkpoints.ranks import pause as pause_module
from headway_job.checkpoints.ranks.pause import PauseControl, SaveOutcome
from headway_job.hook.save_requests import ENDED, NOT_REGISTERED, SaveRequests, request_key

STEP = 40


class Rank:
    """A run of one rank, whose saves end as the test wants."""

    def __init__(self) -> None:
        self._paused = threading.Event()
        self.requests = SaveRequests(keep_client_running=self._paused.set)
        self.requests.set_connected(connected=True)
        self.asked = 0
        self.run = PauseControl(self.requests, 1, 2, self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def answer(self) -> tuple[Any, ...] | None:
        """Return the answer that the agent would get."""
        found = self.requests.answer()
        if found is None:
            return None
        assert self.requests.current is not None
        self.requests.current.set_answered(answered=True)
        return found["id"], found["complete"], found["problem"]

    def save(self, terms: tuple[int, int] | None = None, problem: str = "") -> None:
        """Save on the terms that the ranks agree on; by default on those of this rank."""
        self.run.save_began(STEP, *(terms or self.run.terms()))
        self.run.save_ended(SaveOutcome(STEP, problem))

    def pauses(self, act: Callable[[], Any]) -> float:
        """Call `act` in another thread once the rank pauses; return the length of the pause in seconds."""
        self._paused.clear()
        other = threading.Thread(target=lambda: self._paused.wait(60.0) and act())
        begun_s = time.monotonic()
        other.start()
        self.run.pause_training()
        other.join()
        return time.monotonic() - begun_s


@pytest.fixture
def rank() -> Rank:
    rank = Rank()
    rank.run.register(20)
    return rank


def test_the_line_in_the_jobs_log_is_written_once_and_by_the_first_rank_alone(
    rank: Rank, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (0, 1):
        rank.run._rank = number
        rank.requests.receive_save("p1.1", 0.3, "an operator (by hand)" if number == 0 else "x" * 9000)
        rank.save()
        rank.run.pause_training()
    stop, go_on = capsys.readouterr().err.splitlines()
    assert stop == (
        "headway: step 40 is saved; the scheduler now stops this job, and starts it again later: an operator (by hand)"
    )
    assert go_on == "headway: the job trains on after step 40: the job was not stopped within 0.3 s"


def test_the_line_is_written_before_the_agent_can_have_the_answer(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the job stopped, which may be before the training thread, that waits meanwhile, runs again."""
    written: list[tuple[str, object]] = []
    monkeypatch.setattr(job_log, "write_line", lambda text: written.append((text, rank.requests.answer())))
    rank.run._rank = 0
    rank.requests.receive_save("p1.1", 30.0)

    rank.save()

    assert written == [(job_log.stop_line(STEP, ""), None)]
    assert rank.answer() == ("p1.1", True, "")


@pytest.mark.parametrize("how", ["fails", "is cancelled", "is over"])
def test_no_line_says_that_a_job_is_stopped_which_goes_on(
    rank: Rank, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rank.run._rank = 0
    rank.requests.receive_save("p1.1", 30.0)
    rank.run.save_began(STEP, *rank.run.terms())
    if how == "is cancelled":
        rank.requests.receive_go_on("p1.1")
    if how == "is over":
        assert rank.run._pause is not None
        rank.run._pause.end()

    rank.run.save_ended(SaveOutcome(STEP, "no space" if how == "fails" else ""))

    assert capsys.readouterr().err == ""


def test_a_request_with_a_reason_that_is_no_text_is_a_request(rank: Rank) -> None:
    for reason in (None, 5, b"x", ["y"]):
        rank.requests.receive_save(f"p1.{reason!r}", 30.0, reason)
        assert rank.requests.current is not None and rank.requests.current.why == ""
    rank.requests.receive_save("p2.1", 30.0, "y" * 9000)
    assert rank.requests.current is not None and len(rank.requests.current.why) == 255


def test_a_job_whose_standard_error_is_closed_or_missing_trains_on(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        job_log.write_line("step 40 is saved")


def test_a_second_request_extends_the_pause(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 30.0)
    rank.save()
    pause = rank.run._pause
    assert pause is not None
    pause.begun_ns -= 20_000_000_000

    rank.requests.receive_save("p1.2", 30.0)

    assert pause.length_ns >= 50_000_000_000
    assert rank.run._resume_reason(pause, []) == ""


def test_a_request_and_its_save(rank: Rank) -> None:
    assert (rank.run.wanted, rank.run.terms(), rank.answer()) == (False, (0, 0), None)
    rank.requests.receive_save("p1.1", 30.0)
    assert (rank.run.wanted, rank.run.terms(), rank.asked) == (True, (30_000, request_key("p1.1")), 1)
    rank.run.save_began(STEP, *rank.run.terms())
    assert (rank.run.wanted, rank.answer()) == (False, None)
    rank.run.save_ended(SaveOutcome(STEP, ""))
    assert rank.answer() == ("p1.1", True, "")
    assert rank.answer() is None
    rank.requests.receive_save("p1.1", 30.0)
    assert rank.answer() == ("p1.1", True, "")
    rank.pauses(lambda: rank.requests.receive_go_on("p1.1"))
    assert rank.requests.current is None
    assert rank.requests.state() == {
        "rank": 1, "world_size": 2, "start": 20, "saved": STEP, "saving": False, "open": True,
    }  # fmt: skip


def test_a_save_without_terms_causes_no_pause(rank: Rank) -> None:
    rank.save((0, 0))
    rank.run.pause_training()
    rank.requests.receive_save("p1.1", 30.0)
    rank.save((0, 0))  # the ranks agreed before this rank got the request
    rank.run.pause_training()
    assert rank.run.wanted
    assert rank.answer() is None


def test_a_rank_without_a_request_pauses_with_the_others_and_answers_when_it_gets_one(rank: Rank) -> None:
    rank.save((30_000, request_key("p1.1")))
    assert rank.answer() is None
    rank.requests.receive_save("p1.1", 30.0)
    assert (rank.asked, rank.run.wanted, rank.answer()) == (0, False, ("p1.1", True, ""))
    rank.pauses(lambda: rank.requests.receive_go_on("p1.1"))


def test_a_rank_without_a_request_continues_when_it_is_cancelled(rank: Rank) -> None:
    rank.save((30_000, request_key("p1.1")))
    rank.pauses(lambda: [rank.requests.receive_go_on("p0.1"), rank.requests.receive_go_on("p1.1")])


def test_a_request_that_is_cancelled_before_the_save_causes_no_pause(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 30.0)
    terms = rank.run.terms()
    rank.requests.receive_go_on("p1.1")
    assert not rank.run.wanted
    rank.save(terms)
    rank.run.pause_training()
    rank.requests.receive_save("p1.1", 30.0)  # a request that arrives after its cancellation is ignored
    assert not rank.run.wanted


def test_the_newest_request_counts(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 0.4)
    rank.save()
    assert rank.answer() == ("p1.1", True, "")
    rank.requests.receive_save("p1.2", 30.0)
    assert rank.answer() == ("p1.2", True, "")
    rank.requests.receive_go_on("p1.1")
    assert rank.pauses(lambda: [time.sleep(0.5), rank.requests.receive_go_on("p1.2")]) > 0.5


def test_it_pauses_no_longer_than_requested(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 0.2)
    rank.save()
    assert rank.answer() == ("p1.1", True, "")
    rank.run.pause_training()
    rank.requests.receive_save("p1.1", 0.2)
    assert rank.answer() == ("p1.1", False, "it has continued to train since then")
    rank.requests.receive_save("p1.2", 0.2)
    assert rank.run.wanted


def test_a_store_that_blocks_does_not_extend_the_pause(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 0.2)
    rank.run.save_began(STEP, *rank.run.terms())
    rank.run.pause_training()
    assert rank.answer() == ("p1.1", False, "it has continued to train since then")
    rank.run.save_ended(SaveOutcome(STEP, ""))


def test_a_save_that_fails_is_reported_and_causes_no_pause(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 30.0)
    rank.run.save_began(STEP, *rank.run.terms())
    rank.pauses(lambda: rank.run.save_ended(SaveOutcome(STEP, "could not write: no room")))
    assert rank.answer() == ("p1.1", False, "could not write: no room")
    assert not rank.run.wanted


def test_without_a_connection_it_continues(rank: Rank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause_module, "_AGENT_AWAY_NS", 200_000_000)
    rank.requests.receive_save("p1.1", 30.0)
    rank.save()
    assert rank.pauses(lambda: rank.requests.set_connected(connected=False)) > 0.2


def test_a_connection_that_was_lost_before_counts_from_the_save_on(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 30.0)
    rank.requests.set_connected(connected=False)
    assert rank.requests.disconnected_ns is not None
    rank.requests.disconnected_ns -= 2 * pause_module._AGENT_AWAY_NS
    rank.save()
    back = rank.pauses(
        lambda: [rank.requests.set_connected(connected=True), time.sleep(0.4), rank.requests.receive_go_on("p1.1")]
    )
    assert back > 0.4


def test_without_a_run() -> None:
    requests = SaveRequests()
    assert requests.state() is None
    requests.receive_save("p1.1", 30.0)
    assert requests.answer() == {"id": "p1.1", "step": -1, "complete": False, "problem": NOT_REGISTERED, "own": False}
    assert "headway_job.checkpoint was not called" in NOT_REGISTERED


def test_a_request_during_the_start_is_served() -> None:
    rank = Rank()
    rank.requests.receive_save("p1.1", 30.0)
    rank.run.register(0)
    assert (rank.run.wanted, rank.asked) == (True, 1)


def test_a_run_that_has_ended_answers_so(rank: Rank) -> None:
    rank.run.close()
    rank.requests.receive_save("p1.1", 30.0)
    assert (rank.answer(), rank.asked) == (("p1.1", False, ENDED), 0)
    state = rank.requests.state()
    assert state is not None and not state["open"]


def test_the_newest_run_of_a_process_gets_the_request(rank: Rank) -> None:
    newer = PauseControl(rank.requests, 0, 1, lambda: None)
    newer.register(0)
    rank.requests.receive_save("p1.1", 30.0)
    assert (rank.run.wanted, newer.wanted, rank.asked) == (False, True, 0)
    assert rank.run.terms() == (0, 0)


@pytest.mark.parametrize(
    ("request_id", "pause_s"),
    [(7, 1.0), ("", 1.0), ("p" * 256, 1.0), ("p1", "1"), ("p1", float("nan")), ("p1", -1.0), ("p1", 1e9)],
)
def test_what_no_agent_would_say_is_ignored(rank: Rank, request_id: Any, pause_s: Any) -> None:
    rank.requests.receive_save(request_id, pause_s)
    rank.requests.receive_go_on(["p1"])
    assert (rank.requests.current, rank.asked) == (None, 0)


@pytest.fixture
def own_handler() -> Iterator[list[int]]:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    yield heard
    signal.signal(signal.SIGTERM, before)


def test_the_programs_handler_of_sigterm_is_its_own_again(rank: Rank, own_handler: list[int]) -> None:
    its_own = signal.getsignal(signal.SIGTERM)
    rank.requests.receive_save("p1.1", 30.0)
    rank.save()
    rank.pauses(lambda: signal.raise_signal(signal.SIGTERM))
    assert own_handler == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is its_own
    assert rank.requests.state() is not None


def test_what_a_handler_raises_leaves_nothing_behind(rank: Rank) -> None:
    def handler(_number: int, _frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, handler)
    try:
        rank.requests.receive_save("p1.1", 30.0)
        rank.save()
        with pytest.raises(KeyboardInterrupt):
            rank.pauses(lambda: signal.raise_signal(signal.SIGTERM))
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rank.answer() == ("p1.1", False, "it has continued to train since then")


def test_a_run_that_saves_no_more_answers_earlier_and_later_requests(rank: Rank) -> None:
    rank.requests.receive_save("p1.1", 30.0)
    rank.run.stop_saving("the run saves no more: another rank is gone")
    assert rank.answer() == ("p1.1", False, "the run saves no more: another rank is gone")
    rank.requests.receive_save("p1.2", 30.0)
    assert rank.answer() == ("p1.2", False, "the run saves no more: another rank is gone")
    assert (rank.run.wanted, rank.asked, rank.run.state()["open"]) == (False, 1, False)
