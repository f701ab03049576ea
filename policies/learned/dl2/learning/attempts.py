"""Attempts to make better weights: when one is due, and how the one under way ends."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from policies.api import LearningStatus
from policies.errors import TrainingError
from policies.learned.dl2.learning.attempt import CLUSTER, PARENT, RESULT, TRAINING
from policies.learned.dl2.learning.attempt_process import LOG, Attempt, StartAttempt
from policies.learned.dl2.learning.history import DAY_S, History, read_history
from policies.learned.dl2.learning.progress import Progress
from policies.learned.dl2.learning.replay_trace import FEWEST_JOBS, FEWEST_WINDOWS
from policies.learned.dl2.learning.result import FAILED, PROMOTED, STOPPED, AttemptResult
from policies.learned.dl2.learning.settings import LearnSettings
from policies.learned.evaluation.promotion import BEST

log = structlog.get_logger("policy.learning")

NEW_JOBS = 25
"""Jobs that must have ended since the last attempt: fewer would repeat the same comparison."""
_MOST_RESULT_BYTES = 1 << 16
_ATTEMPT, _PROGRESS = "attempt", "attempts.json"


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of an attempt."""

    result: AttemptResult
    folder: Path
    """Folder of the candidate."""

    @property
    def is_promotion(self) -> bool:
        """True if the candidate is to be promoted."""
        return self.result.result == PROMOTED

    def failed(self, reason: str) -> Finished:
        """Return the same end as a failure."""
        return replace(self, result=replace(self.result, result=FAILED, reason=reason))


class Attempts:
    """Invariant: at most one attempt is under way, and it ends within `longest_s`."""

    def __init__(self, settings: LearnSettings, start: StartAttempt, now: Callable[[], float]) -> None:
        self.progress = Progress()
        self.new_jobs = 0
        """Jobs that have ended since the last attempt."""
        self.waits_for = ""
        """Why there is no attempt although the history has jobs enough; empty if nothing else is missing."""
        self._settings = settings
        self._start = start
        self._now = now
        self._folder = settings.folder / _ATTEMPT
        self._attempt: Attempt | None = None
        self._begun_s = 0.0
        self._newest_s = 0.0
        self._parent = ""

    @property
    def under_way(self) -> bool:
        """True while a process trains."""
        return self._attempt is not None

    def status(self) -> LearningStatus:
        """Return what operators see of the attempts. Called from any thread."""
        progress = self.progress
        done = LearningStatus(training=self.under_way, attempts=progress.attempts, promotions=progress.promotions)
        if (last := progress.last) is None:
            return done
        return replace(
            done,
            last_attempt_s=last.ended_s,
            last_result=last.result,
            last_reason=last.reason,
            change=last.change,
            ci95=last.ci95,
        )

    def open(self, history: History) -> None:
        """Read how many attempts there were. A damaged file counts as none. Raises OSError."""
        try:
            self.progress = Progress.load(self._settings.folder / _PROGRESS)
        except TrainingError as error:
            log.warning("attempts_unknown", problem=str(error))
        since_s = 0.0 if self.progress.last is None else self.progress.last.newest_s
        records, _ = read_history(history.path)
        self.new_jobs = sum(record.finish_time_s > since_s for record in records)

    def due(self, history: History) -> bool:
        """Return whether an attempt should begin now."""
        self.waits_for = ""
        if history.jobs < FEWEST_JOBS or self.new_jobs < NEW_JOBS:
            return False
        last = self.progress.last
        # A clock that was set back must not end the attempts.
        if last is not None and abs(self._now() - last.ended_s) < self._settings.every_s:
            return False
        age_s = self._settings.limits.age_s
        young = history.jobs_since(self._now() - age_s)
        if young < FEWEST_JOBS:
            self.waits_for = (
                f"{young} of {history.jobs} jobs of the history have ended within learn_days ({age_s / DAY_S:g} days); "
                f"{FEWEST_JOBS} are needed"
            )
        return young >= FEWEST_JOBS

    def begin(
        self,
        history: History,
        cluster: str,
        copy_parent: Callable[[Path], str],
        save_candidate: Callable[[Path], None] | None = None,
    ) -> None:
        """Start an attempt on a cluster of that shape; `copy_parent` writes the weights in service to a folder and returns their
        digest. With `save_candidate`, which writes other weights to a folder, these are compared; without, the process trains
        on replays. A failure counts as an attempt. Raises PolicyError and OSError.
        """
        settings = self._settings
        self.new_jobs = 0
        self._newest_s = history.newest_s
        self._begun_s = self._now()
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700)
            (self._folder / CLUSTER).write_text(cluster, encoding="utf-8")
            self._parent = copy_parent(self._folder / PARENT)
            if save_candidate is not None:
                settings = replace(settings, rounds=0)
                save_candidate(self._folder / TRAINING / BEST)
            self._attempt = self._start(self._folder, settings, history.path, self.progress)
        except Exception as error:
            self.note(self._ended(FAILED, f"it could not begin: {error}"))
            raise

    def finished(self, in_service: str) -> Finished | None:
        """Return the end of the attempt, or None while it goes on. `in_service` is the digest of the weights in service."""
        assert self._attempt is not None
        code = self._attempt.exit_code()
        if code is None:
            if abs(self._now() - self._begun_s) < self._settings.longest_s:
                return None
            self.kill()
            return self._end(self._ended(STOPPED, f"it took longer than {self._settings.longest_s:g} s"))
        self._attempt = None
        if code:
            return self._end(self._ended(FAILED, f"its process ended {_how(code)}; see {self._folder / LOG}"))
        try:
            found = self._read()
        except (TrainingError, OSError) as error:
            return self._end(self._ended(FAILED, str(error)))
        if found.result == PROMOTED and (why_not := self._why_not(found, in_service)):
            found = replace(found, result=FAILED, reason=why_not)
        return self._end(found)

    def note(self, result: AttemptResult) -> None:
        """Count an attempt. Raises OSError if that cannot be written; it counts until the next start then."""
        self.progress = Progress(
            attempts=self.progress.attempts + 1,
            compared=self.progress.compared + (result.change is not None),
            promotions=self.progress.promotions + (result.result == PROMOTED),
            last=replace(result, newest_s=self._newest_s),
        )
        self.progress.save(self._settings.folder / _PROGRESS)

    def kill(self) -> None:
        """End the attempt under way, if there is one."""
        if self._attempt is not None:
            self._attempt.kill()
            self._attempt = None

    def _read(self) -> AttemptResult:
        with (self._folder / RESULT).open("rb") as file:
            return AttemptResult.from_json(file.read(_MOST_RESULT_BYTES))

    def _why_not(self, found: AttemptResult, in_service: str) -> str:
        """Return why better weights are not promoted all the same; empty if they are."""
        if not found.is_better(self.progress.compared) or found.windows < FEWEST_WINDOWS:
            return "its interval is not below zero, or has too few windows"
        if found.parent != self._parent or self._parent != in_service:
            return "the weights in service were changed while it trained"
        return ""

    def _ended(self, result: str, reason: str) -> AttemptResult:
        now_s = max(self._now(), 0.0)
        return AttemptResult(result=result, reason=reason, ended_s=now_s, took_s=max(now_s - self._begun_s, 0.0))

    def _end(self, result: AttemptResult) -> Finished:
        return Finished(result, self._folder / TRAINING)


def _how(code: int) -> str:
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}, perhaps for lack of memory"
    except ValueError:
        return f"by signal {-code}"
