"""Continued learning beside the decisions: a thread that keeps the history, and a process that trains.

    each second: note running jobs, append ended jobs to the history; serve other weights if an operator has changed them
    each slot: a gradient step from the cluster's rewards, on a copy of the weights in service
    when an attempt is due: copy the weights in service, start the process, which compares the copy that has learned from rewards,
    or one that it trains on replays, in turns
    when it has ended: promote its weights if the interval of the change of the average JCT is below zero

The thread of the decisions only puts states and outcomes into queues, and reads one reference to the weights.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import structlog

from policies.api import LearningStatus, Outcome
from policies.errors import PolicyError, TrainingError
from policies.learned.dl2.division import Step
from policies.learned.dl2.learning.attempt_process import AttemptProcess, StartAttempt
from policies.learned.dl2.learning.attempts import Attempts
from policies.learned.dl2.learning.cluster_shape import shape_of
from policies.learned.dl2.learning.feedback.feedback import Feedback
from policies.learned.dl2.learning.history import History
from policies.learned.dl2.learning.job_notes import JobNotes
from policies.learned.dl2.learning.record import JobRecord
from policies.learned.dl2.learning.service import ServiceFolder, Weights
from policies.learned.dl2.learning.settings import LearnSettings
from policies.learned.training.run.folder_lock import locked
from policies.model import ClusterState

log = structlog.get_logger("policy.learning")

CYCLE_S = 1.0
_AGAIN_S = 60.0
"""Time after which a folder that could not be used is tried again, seconds."""
_END_S = 3.0
"""Time for the thread to end, seconds."""
_MOST_STATES, _MOST_OUTCOMES = 16, 20_000
_HISTORY = "history.log"


class ContinuedLearning:
    """Learns from one cluster in one folder.

    Invariants: the methods called by the thread of the decisions do no I/O and never wait; `swap` is called with sound weights
    only; a failure of any kind leaves the weights in service as they are.
    """

    def __init__(
        self,
        settings: LearnSettings,
        service: ServiceFolder,
        weights: Weights,
        swap: Callable[[Weights], None],
        *,
        slot_s: float,
        start: StartAttempt = AttemptProcess,
        now: Callable[[], float] = time.time,
        cycle_s: float = CYCLE_S,
    ) -> None:
        """`weights` are in service now; `swap` puts others into service; `slot_s` is the length of a slot."""
        self._settings = settings
        self._service = service
        self._weights = weights
        self._stamp = service.stamp()
        self._swap = swap
        self._now = now
        self._cycle_s = cycle_s
        self._notes = JobNotes()
        self._history = History(settings.folder / _HISTORY, settings.limits)
        self._attempts = Attempts(settings, start, now)
        self._feedback = Feedback(slot_s, weights)
        self._by_feedback = False
        """True if the last attempt compared the copy that has learned from rewards."""
        self._states: deque[tuple[ClusterState, tuple[Step, ...]]] = deque(maxlen=_MOST_STATES)
        self._outcomes: deque[Outcome] = deque()
        """Bound: `_MOST_OUTCOMES`."""
        self._refused = 0
        self._shape = ""
        self._is_open = False
        self._open_again_s = 0.0
        self._problem = weights.problem
        self._stack = ExitStack()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="learning", daemon=True)

    # Called by the server and its threads

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """End the thread, and with it an attempt that is under way."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(_END_S)

    def see(self, state: ClusterState, steps: tuple[Step, ...] = ()) -> None:
        """Note a state that a decision was made on, and the agent's actions; none if the agent did not decide."""
        self._states.append((state, steps))

    def learn(self, outcome: Outcome) -> None:
        """Note the end of a job. When the thread is far behind, it is lost and counted."""
        if len(self._outcomes) >= _MOST_OUTCOMES:
            self._refused += 1
        else:
            self._outcomes.append(outcome)

    def status(self) -> LearningStatus:
        """Return the present state, for operators."""
        return replace(
            self._attempts.status(),
            weights_sha256=self._weights.card.weights_sha256,
            weights_since_s=self._weights.since_s,
            history_jobs=self._history.jobs,
            history_bytes=self._history.size,
            outcomes_refused=self._refused,
            feedback_samples=len(self._feedback.memory),
            feedback_updates=self._feedback.updates,
            feedback_left_out=self._feedback.decisions.left_out,
            problem=self._problem or self._attempts.waits_for,
        )

    # The thread

    def _run(self) -> None:
        with self._stack:
            self._stack.callback(self._attempts.kill)
            while not self._stop.wait(self._cycle_s):
                self._guarded(self.cycle)
            self._guarded(self._record_last)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work; a failure becomes the problem that operators see."""
        try:
            work()
        except (PolicyError, OSError) as error:
            self._note_problem(str(error))
        except Exception as error:  # the thread must outlast a defect: without it nothing is recorded
            log.exception("learning_failed")
            self._note_problem(f"{type(error).__name__}: {error}")

    def _record_last(self) -> None:
        """Record the jobs that have ended since the last cycle. Raises PolicyError and OSError."""
        if self._outcomes and not self._is_open:
            self._open()
        self._take_states()
        if self._is_open:
            self._record()

    def cycle(self) -> None:
        """Do what is to be done now. Raises PolicyError and OSError."""
        if not self._is_open:
            self._open()
            if not self._is_open:
                self._take_states()
                return
        self._follow_operator()
        self._take_states()
        self._record()
        if self._attempts.under_way:
            self._finish()
        elif self._shape and self._attempts.due(self._history):
            self._begin_attempt()

    def _open(self) -> None:
        """Lock and read the folder; try again later if that fails."""
        if self._now() < self._open_again_s:
            return
        self._open_again_s = self._now() + _AGAIN_S
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(self._settings.folder))
            except TrainingError as error:
                raise TrainingError(f"nothing is learned: {error}") from error
            self._history.open(self._now())
            self._attempts.open(self._history)
            self._stack.push(stack.pop_all())
        self._is_open = True
        self._problem = self._weights.problem
        if self._history.refused:
            log.warning("history_damaged", lines_refused=self._history.refused, path=str(self._history.path))
        log.info("learning", folder=str(self._settings.folder), jobs=self._history.jobs, weights=self._digest)

    def _take_states(self) -> None:
        state: ClusterState | None = None
        while self._states:
            state, steps = self._states.popleft()
            self._notes.see(state)
            self._feedback.see(state, steps)
        if state is not None:
            self._shape = shape_of(state)

    def _record(self) -> None:
        """Append the jobs that have ended. Those that cannot be appended are lost and counted."""
        records: list[JobRecord] = []
        while self._outcomes:
            outcome = self._outcomes.popleft()
            try:
                record = self._notes.ended(outcome, self._now())
            except TrainingError as error:
                self._refused += 1
                log.warning("outcome_refused", problem=str(error))
                continue
            self._feedback.ended(outcome)
            if record is not None:
                records.append(record)
        if not records:
            return
        try:
            self._attempts.new_jobs += self._history.append(records)
        except (TrainingError, OSError) as error:
            self._refused += len(records)
            problem = f"{self._history.path}: {error.strerror}" if isinstance(error, OSError) else str(error)
            raise TrainingError(f"{problem}; {len(records)} jobs are lost") from error
        self._problem = self._weights.problem
        self._history.shorten(self._now())

    @property
    def _digest(self) -> str:
        return self._weights.card.weights_sha256[:12]

    def _begin_attempt(self) -> None:
        # In turns: neither way waits for the other, and each attempt has one candidate, so that it spends one comparison.
        self._by_feedback = self._feedback.copy.has_changed and not self._by_feedback
        self._attempts.begin(
            self._history,
            self._shape,
            lambda folder: self._service.copy(self._weights, folder),
            self._feedback.save_candidate if self._by_feedback else None,
        )
        log.info("attempt_begins", jobs=self._history.jobs, weights=self._digest, by_feedback=self._by_feedback)

    def _finish(self) -> None:
        """Promote the weights of the attempt if it has ended with better ones."""
        found = self._attempts.finished(self._weights.card.weights_sha256)
        if found is None:
            return
        if found.is_promotion:
            try:
                self._serve(self._service.promote(found.folder, found.result.candidate, self._weights))
            except (PolicyError, OSError) as error:
                found = found.failed(str(error))
        elif self._by_feedback and found.result.is_worse:
            self._feedback.begin_with(self._weights)
        self._attempts.note(found.result)
        result = found.result
        log.info(
            "attempt_ended", result=result.result, reason=result.reason, change=result.change, ci95=result.ci95,
            windows=result.windows, jobs=result.jobs, took_s=round(result.took_s), weights=self._digest,
            by_feedback=self._by_feedback,
        )  # fmt: skip

    def _follow_operator(self) -> None:
        """Serve other weights if the folder has others: `headway-policy promote` has put them there, or taken them away."""
        stamp = self._service.stamp()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        found = self._service.load()
        if found.columns != self._weights.columns:
            raise TrainingError(f"{found.folder}: it has other states than the weights in service; restart the server")
        if found.card.weights_sha256 != self._weights.card.weights_sha256:
            self._serve(found)
            log.info("weights_changed", weights=self._digest, folder=found.folder)

    def _serve(self, weights: Weights) -> None:
        self._swap(weights)
        self._weights = weights
        self._feedback.begin_with(weights)
        self._stamp = self._service.stamp()

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("learning_problem", problem=problem)
        self._problem = problem
