"""Pauses the training after a save that the agent has requested, so that the job is stopped in exactly the state that was saved.

All ranks pause at the same step boundary, by an agreement among themselves, whichever of them has received the request. The
training thread waits inside `run.step`: no collective is open, signals reach the program, and the training continues by itself if
the job is not stopped.

If a process has several runs that train, such as those of two networks, each saves at its own next boundary, and the training
pauses at that of the last one. Ranks make the steps of all runs in the same order, so the last one is the same on all ranks.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from contextlib import contextmanager
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ... import job_log
from ...hook.save_requests import SaveRequest, SaveRequests, answer

_SLICE_S = 0.05
_AGENT_AWAY_NS = 5_000_000_000
"""An agent that is restarted is back within this time."""
_CONTINUED = "it has continued to train since then"


class SaveOutcome:
    """Result of a save. Without a problem, it is complete on all ranks."""

    def __init__(self, step: int, problem: str, *, own: bool = False) -> None:
        self.step = step
        self.problem = problem
        self.own = own
        """This rank is the one that failed."""


class Pause:
    """One pause, which starts when its save begins; if other runs of the process have to save, too, when the last save begins."""

    def __init__(self, step: int, pause_ms: int, key: int) -> None:
        self.step = step
        self.key = key
        """Key of the newest request that it answers. The pause ends if that one is cancelled."""
        self.begun_ns = time.monotonic_ns()
        self.length_ns = pause_ms * 1_000_000
        self.outcome: Optional[SaveOutcome] = None
        self.why = ""
        """Why the job is to be stopped; empty = this rank does not know."""
        self.held = False
        """The training waits; False = it goes on until other runs of this process have begun to save, too."""
        self.over = False
        self.told = False
        """The job's own log says that the job is stopped."""
        self._log_lock = threading.Lock()
        """Held while the pause ends, and while the line is written that the job is stopped: no such line follows the end."""

    def attach(self, request: SaveRequest) -> None:
        """Last for this request too, whose time begins now."""
        elapsed_ns = time.monotonic_ns() - self.begun_ns
        self.length_ns = max(self.length_ns, elapsed_ns + request.pause_ms * 1_000_000)
        self.key = request.key
        self.why = request.why or self.why

    @property
    def saved(self) -> bool:
        """True once its save is complete."""
        return self.outcome is not None and not self.outcome.problem

    def hold(self) -> None:
        """Note that the training waits from now on."""
        self.begun_ns, self.held = time.monotonic_ns(), True

    def note_outcome(self, outcome: SaveOutcome) -> None:
        """Note how its save ended."""
        self.outcome = outcome

    def tell_stop(self) -> None:
        """Write into the job's own log that the job is stopped, unless the training continues already."""
        with self._log_lock:
            if not self.over:
                self.told = True
                job_log.write_line(job_log.stop_line(self.step, self.why))

    def end(self) -> None:
        """Note that the training continues."""
        with self._log_lock:
            self.over = True

    def answer(self, request_id: str) -> Optional[Dict[str, Any]]:
        """Return the fields of a saved frame; None = not known yet."""
        if self.outcome is not None and self.outcome.problem:
            return answer(request_id, self.step, self.outcome.problem, own=self.outcome.own)
        if self.over:
            return answer(request_id, self.step, _CONTINUED)
        return None if self.outcome is None or not self.held else answer(request_id, self.step, "")


class PauseControl:
    """The pauses of one run. Invariant: the training waits no longer than the agent requested, and never after a failed save."""

    def __init__(self, requests: SaveRequests, rank: int, world_size: int, request_save: Callable[[], None]) -> None:
        """`request_save` requests a save of the run."""
        self.open = True
        """The run saves on request."""
        self.counts = True
        """The run has not ended."""
        self.stepped = False
        """See SavingRun; set by the run."""
        self._requests = requests
        self._rank = rank
        self._world_size = world_size
        self._request_save = request_save
        self._start = 0
        self._saved = -1
        self._writing = False
        self._pause: Optional[Pause] = None
        self._refusal = ""
        """Reason why this run saves no more; empty = it does."""
        self._wake = threading.Event()

    # ---- called by our own thread

    def accept(self, request: SaveRequest) -> None:
        """Take a new request, which is the current one already."""
        pause = self._pause
        if pause is not None and pause.held and not pause.over:
            self._attach(pause, request)
            return
        if pause is not None:  # the training has gone on since that save
            self._pause = None
            pause.end()
        if self._refusal:
            self._refuse(request)
        elif self.open:
            self._request_save()

    def wake(self) -> None:
        """Look again: a request was cancelled."""
        self._wake.set()

    def state(self) -> Dict[str, Any]:
        """Return the fields of a checkpoint frame."""
        return {
            "rank": self._rank,
            "world_size": self._world_size,
            "start": self._start,
            "saved": self._saved,
            "saving": self._writing or self._pause is not None,
            "open": self.open,
        }

    # ---- called by the training thread

    def register(self, start: int) -> None:
        """Register the run, which begins at step `start`: from here on it saves on request."""
        self._start = start
        self._requests.register(self)
        request = self._requests.current
        if request is not None and self not in request.saves and not request.answered:
            self.accept(request)
        self._requests.wake_client()

    @property
    def wanted(self) -> bool:
        """True if the agent waits for a save of this run that has not begun."""
        request = self._requests.current
        if request is None or request.answered or self in request.saves:
            return False
        return self in self._requests.training()

    def terms(self) -> Tuple[int, int]:
        """Return how long to pause after the wanted save, in ms, and the key of its request; (0, 0) = no pause."""
        request = self._requests.current
        return (request.pause_ms, request.key) if request is not None and self.wanted else (0, 0)

    def save_began(self, step: int, pause_ms: int, key: int) -> None:
        """Note that a save begins, on the terms that all ranks have agreed on."""
        self._writing = True
        if not pause_ms or self._requests.is_cancelled(key):
            return
        pause = Pause(step, pause_ms, key)
        self._hold(pause)  # before our own thread can see it
        self._pause = pause
        request = self._requests.current
        if request is not None and self.wanted:
            self._attach(pause, request)

    @property
    def stop_reason(self) -> str:
        """Return the reason for which the job is to be stopped after the save that has begun; empty = none is known."""
        return "" if self._pause is None else self._pause.why

    @property
    def waits(self) -> bool:
        """True between two steps if the run has saved, and other runs of this process have not."""
        return self._pause is not None

    def settle(self) -> None:
        """Pause if other runs of this process have saved meanwhile; or note that the request is over. Call it while `waits`."""
        pause = self._pause
        if pause is None:
            return
        why = self._resume_reason(pause, [])
        if why:
            self.release(pause, why)
        elif self._hold(pause):
            self.pause_training()

    def pause_training(self) -> None:
        """Wait if all ranks do. Call it after `save_began`, once the save is being written."""
        pause = self._pause
        if pause is None or not pause.held:
            return
        together = self._together(pause)
        job_log.log(
            logging.INFO,
            "The training pauses after step %d: the cluster's scheduler (Headway) has requested a checkpoint, in order to stop "
            "the job and start it again later. If it does not stop the job, the training continues by itself.",
            pause.step,
        )
        why = "an exception was raised"
        try:
            with _watch_sigterm() as received:
                while not (why := self._first_reason(together, received)):
                    self._requests.keep_client_running()
                    self._wake.wait(_SLICE_S)
                    self._wake.clear()
        finally:
            for run, held in together:
                run.release(held, why)
            job_log.log(logging.INFO, "The training continues after step %d: %s.", pause.step, why)

    def release(self, pause: Pause, why: str) -> None:
        """End the pause."""
        told = pause.told and not pause.over
        pause.end()
        if self._pause is pause:
            self._pause = None
        self._requests.wake_client()
        if told:
            job_log.write_line(job_log.go_on_line(pause.step, why))

    def pause_for(self, key: int) -> Optional[Pause]:
        """Return the pause that answers the request with that key; None = its save has not begun, or it is over."""
        pause = self._pause
        return pause if pause is not None and pause.key == key and not pause.over else None

    def stop_saving(self, why: str) -> None:
        """Save no more. From here on, every request is answered with the reason."""
        self._refusal, self.open = why, False
        if self.wanted and self._requests.current is not None:
            self._refuse(self._requests.current)
        self._requests.wake_client()

    def close(self) -> None:
        """End the run."""
        self.open = self.counts = False
        self._requests.wake_client()

    def _refuse(self, request: SaveRequest) -> None:
        pause = Pause(self._saved, 0, request.key)
        pause.note_outcome(SaveOutcome(self._saved, self._refusal))
        pause.end()
        request.answer_by(self, pause)

    def _attach(self, pause: Pause, request: SaveRequest) -> None:
        pause.attach(request)
        request.answer_by(self, pause)

    def _others(self) -> List[PauseControl]:
        """Return the other runs of this process that train."""
        return [run for run in self._requests.training() if isinstance(run, PauseControl) and run is not self]

    def _hold(self, pause: Pause) -> bool:
        """Let the training wait, and return True, if all runs of this process that train have begun to save."""
        if any(run.pause_for(pause.key) is None for run in self._others()):
            return False
        for _, each in self._together(pause):
            each.hold()
        return True

    def _together(self, pause: Pause) -> List[Tuple[PauseControl, Pause]]:
        """Return the pauses for the same request, with their runs."""
        found = [(self, pause)]
        for run in self._requests.registered():
            if isinstance(run, PauseControl) and run is not self:
                other = run.pause_for(pause.key)
                if other is not None:
                    found.append((run, other))
        return found

    def _first_reason(self, together: List[Tuple[PauseControl, Pause]], received: List[int]) -> str:
        """Return why the training continues; empty = all of the pauses last."""
        if any(each.over for _, each in together):
            return "another thread of the program continues"
        reasons = (run._resume_reason(each, received) for run, each in together)
        return next((why for why in reasons if why), "")

    def _resume_reason(self, pause: Pause, received: List[int]) -> str:
        """Return why the training continues; empty = it still pauses."""
        now_ns, disconnected_ns = time.monotonic_ns(), self._requests.disconnected_ns
        if pause.outcome is not None and pause.outcome.problem:
            return "the save failed"
        if self._requests.is_cancelled(pause.key):
            return "the scheduler has cancelled its request, and the job stays where it is"
        if received:
            return "the program has handled SIGTERM"
        if now_ns - pause.begun_ns >= pause.length_ns:
            return f"the job was not stopped within {round(pause.length_ns / 1e9, 1):g} s"
        if disconnected_ns is not None and now_ns - max(disconnected_ns, pause.begun_ns) >= _AGENT_AWAY_NS:
            return "the connection to the scheduler's agent on this node is lost"
        return ""

    # ---- called by the writing thread

    def save_ended(self, outcome: SaveOutcome) -> None:
        """Note the outcome of the save that began last. The job may be stopped once it is known: its log has the line by then."""
        pause = self._pause
        if pause is not None and self._rank == 0 and not outcome.problem and not self._requests.is_cancelled(pause.key):
            others = [run.pause_for(pause.key) for run in self._others()]
            if all(other is not None and other.saved for other in others):  # this is the last save to end
                pause.tell_stop()
        if not outcome.problem:
            self._saved = outcome.step
        if pause is not None:
            pause.note_outcome(outcome)
            self._wake.set()
        self._writing = False
        self._requests.wake_client()


@contextmanager
def _watch_sigterm() -> Iterator[List[int]]:
    """Yield a list that gets an entry once the program's own handler of SIGTERM was called.

    The training then continues, as the program may need to end in its own way.
    """
    received: List[int] = []
    before: Any = signal.getsignal(signal.SIGTERM)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield received
        return

    def on_signal(number: int, frame: Optional[FrameType]) -> None:
        received.append(number)
        before(number, frame)

    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield received
    finally:
        if signal.getsignal(signal.SIGTERM) is on_signal:
            signal.signal(signal.SIGTERM, before)
