"""Requests of the agent to this process: to save and then pause, and to go on. Our own thread receives them; training threads obey.

Each field is a single object that one thread sets. Where two threads depend on two fields, each sets its own before it reads the
other's, so that at least one of them sees both. There is no lock, because the process may fork at any moment.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Optional, Tuple
from weakref import ReferenceType, ref

if TYPE_CHECKING:
    from typing import Protocol

    class Answering(Protocol):
        """A save, with or without a pause, that answers a request."""

        def answer(self, request_id: str) -> Optional[Dict[str, Any]]:
            """Return the fields of a saved frame; None = not known yet."""

    class SavingRun(Protocol):
        """A run that saves on request."""

        counts: bool
        """False once the run has ended."""
        stepped: bool
        """It has made a step since a newer run was registered; of the newest: since it was registered itself."""

        def accept(self, request: SaveRequest) -> None:
            """Take a new request, which is the current one already."""

        def wake(self) -> None:
            """Look again: a request was cancelled."""

        def state(self) -> Dict[str, Any]:
            """Return the fields of a checkpoint frame."""


MAX_PAUSE_S = 3600.0
"""No agent requests a longer pause."""
_MAX_ID_CHARS = 255
_REMEMBERED = 64
NOT_REGISTERED = "the script has registered no checkpoint: headway_job.checkpoint was not called"
ENDED = "its training has ended"


class SaveRequest:
    """A request of the agent for a save, after which all ranks pause."""

    def __init__(self, request_id: str, pause_ms: int, why: str = "") -> None:
        self.id = request_id
        self.key = request_key(request_id)
        self.pause_ms = pause_ms
        self.why = why
        """Why the job is to be stopped, for people; empty = the agent does not say."""
        self.saves: Dict[SavingRun, Answering] = {}
        """The saves that answer it, by run. Replaced as a whole, as two threads use it. Bound: the runs of this process."""
        self.answered = False
        """The agent has the answer."""

    def answer_by(self, run: SavingRun, save: Answering) -> None:
        """Note the save of a run that answers it."""
        self.saves = {**self.saves, run: save}

    def set_answered(self, *, answered: bool) -> None:
        """Note whether the agent has the answer."""
        self.answered = answered


class SaveRequests:
    """Invariant: the current request is the newest that was not cancelled, and its answer says what is true when it is sent.

    It is complete only if all runs of this process that train have saved. A run trains if it has not ended, and has made a step
    since the newest one was registered: one that was left without an end makes none.
    """

    def __init__(
        self, wake_client: Optional[Callable[[], None]] = None, keep_client_running: Optional[Callable[[], None]] = None
    ) -> None:
        """Without the two functions no thread of ours sends anything, as in a process that is not measured."""
        self.wake_client: Callable[[], None] = wake_client or _nothing
        """Wakes our own thread, as there is something to send."""
        self.keep_client_running: Callable[[], None] = keep_client_running or _nothing
        """Called by a training thread during a pause, so that our own thread is there."""
        self.run: Optional[SavingRun] = None
        """The newest run of this process."""
        self._older: Tuple[ReferenceType[SavingRun], ...] = ()
        """Those that were registered before, and may still train. Bound: the runs that exist."""
        self.current: Optional[SaveRequest] = None
        self.disconnected_ns: Optional[int] = time.monotonic_ns()
        """Time since which there is no connection to the agent (CLOCK_MONOTONIC, ns); None = there is one."""
        self._cancelled: Deque[int] = deque(maxlen=_REMEMBERED)

    # ---- called by our own thread

    def receive_save(self, request_id: Any, pause_s: Any, why: Any = "") -> None:
        """Take a save frame. Values that no agent would send are ignored."""
        if not isinstance(request_id, str) or not 0 < len(request_id) <= _MAX_ID_CHARS:
            return
        if not isinstance(pause_s, (int, float)) or not 0 <= pause_s <= MAX_PAUSE_S:
            return
        if self.is_cancelled(request_key(request_id)):
            return
        if self.current is not None and self.current.id == request_id:
            self.current.set_answered(answered=False)
            return
        reason = why[:_MAX_ID_CHARS] if isinstance(why, str) else ""
        self.current = request = SaveRequest(request_id, max(int(pause_s * 1000), 1), reason)
        for run in self.training():
            run.accept(request)

    def receive_go_on(self, request_id: Any) -> None:
        """Take a go_on frame, which cancels a request. It may arrive before the request itself."""
        if not isinstance(request_id, str) or len(request_id) > _MAX_ID_CHARS:
            return
        self._cancelled.append(request_key(request_id))
        if self.current is not None and self.current.id == request_id:
            self.current = None
        for run in self.registered():
            run.wake()

    def set_connected(self, *, connected: bool) -> None:
        """Record whether there is a connection to the agent."""
        if connected:
            self.disconnected_ns = None
        elif self.disconnected_ns is None:
            self.disconnected_ns = time.monotonic_ns()

    def registered(self) -> List[SavingRun]:
        """Return the runs that exist, in the order in which they were registered."""
        newest = self.run
        older = [run for run in (each() for each in self._older) if run is not None]
        return older if newest is None else [*older, newest]

    def training(self) -> List[SavingRun]:
        """Return the runs that train, in the order in which they were registered. As long as none has made a step, the newest."""
        runs = [run for run in self.registered() if run.counts]
        return [run for run in runs if run.stepped] or [run for run in runs if run is self.run]

    def state(self) -> Optional[Dict[str, Any]]:
        """Return the fields of a checkpoint frame, of the newest run that trains; None = no run was registered."""
        if self.run is None:
            return None
        states = [run.state() for run in self.training()] or [self.run.state()]
        together = {"saving": any(of["saving"] for of in states), "open": all(of["open"] for of in states)}
        return {**states[-1], **together}

    def answer(self) -> Optional[Dict[str, Any]]:
        """Return the fields of a saved frame that is still to be sent. The caller then calls `current.set_answered`."""
        request = self.current
        if request is None or request.answered:
            return None
        saves, training = request.saves, self.training()
        answers = [save.answer(request.id) for save in saves.values()]
        for found in answers:
            if found is not None and not found["complete"]:
                return found
        if None in answers or any(run not in saves for run in training):
            return None
        if answers:
            return answers[-1]
        return answer(request.id, -1, NOT_REGISTERED if self.run is None else ENDED)

    # ---- called by training threads

    def register(self, run: SavingRun) -> None:
        """Register the newest run of this process. An older one receives requests only once it has made another step."""
        older = [each for each in self.registered() if each.counts and each is not run]
        for each in older:
            each.stepped = False
        self._older = tuple(ref(each) for each in older)
        self.run = run

    def is_cancelled(self, key: int) -> bool:
        """Return True if the request with that key was cancelled."""
        return key in self._cancelled


def answer(request_id: str, step: int, problem: str, *, own: bool = False) -> Dict[str, Any]:
    """Return the fields of a saved frame. Without a problem, the save is complete and this rank pauses.

    `own`: this rank is the one that failed, and the problem is the cause.
    """
    return {"id": request_id, "step": step, "complete": not problem, "problem": problem[:_MAX_ID_CHARS], "own": own}


def request_key(request_id: str) -> int:
    """Return a number that stands for an id, the same on all ranks: the ranks exchange numbers only."""
    import hashlib

    return int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:7], "big") + 1


def _nothing() -> None:
    pass
