"""Faults to inject into the emulated Slurm, for tests of its clients."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

_KEEP_CALLS = 20_000


class FaultKind(Enum):
    """A fault of one call."""

    REFUSED = "refused"
    """Every job of the call fails with the fault's message; nothing changes."""
    REQUEST_LOST = "request lost"
    """The request does not reach slurmctld, and the caller gets no answer."""
    REPLY_LOST = "reply lost"
    """slurmctld carries out the request, and the caller gets no answer."""
    CUT_SHORT = "cut short"
    """slurmctld carries out the request for the first jobs only, and the caller gets no answer."""
    ENDED_FIRST = "ended first"
    """Every job of a requeue is cancelled just before, and slurmctld puts it back into the queue nevertheless."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of one call."""

    kind: FaultKind
    message: str = ""
    jobs_done: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One call that a client made."""

    time_s: float
    verb: str
    job_ids: tuple[str, ...]


class Faults:
    """Faults of the calls of a client; verbs are the method names of `SlurmClient`. Faults of one verb happen in order."""

    def __init__(self) -> None:
        self.calls: deque[Call] = deque(maxlen=_KEEP_CALLS)
        """Every call so far, refused and lost ones too."""
        self.most_jobs: int | None = None
        """Jobs for which a changing call has time: it is carried out for the first of them, and no answer comes. None: for all."""
        self.taken: Counter[FaultKind] = Counter()
        """Faults of each kind that a call has had."""
        self.slowed: Counter[str] = Counter()
        """Verb → calls that took longer."""
        self._away = 0
        self._delay_s: dict[str, float] = {}
        self._next: defaultdict[str, deque[Fault]] = defaultdict(deque)

    @property
    def is_unavailable(self) -> bool:
        """True while slurmctld answers no call."""
        return self._away > 0

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        """Answer no call within the context: SlurmUnavailableError."""
        self._away += 1
        try:
            yield
        finally:
            self._away -= 1

    def slow(self, verb: str, seconds: float) -> None:
        """Make the verb take this much longer from now on; 0: its usual time."""
        self._delay_s[verb] = seconds

    def refuse_next(self, verb: str, message: str) -> None:
        """Let the verb's next call fail for all its jobs, with that message."""
        self._next[verb].append(Fault(FaultKind.REFUSED, message))

    def lose_request(self, verb: str) -> None:
        """Let the verb's next call get lost before it arrives."""
        self._next[verb].append(Fault(FaultKind.REQUEST_LOST))

    def lose_reply(self, verb: str) -> None:
        """Let the verb's next call take effect, and lose its answer."""
        self._next[verb].append(Fault(FaultKind.REPLY_LOST))

    def cut_short(self, verb: str, jobs_done: int) -> None:
        """Let the verb's next call take effect for its first jobs only, and lose its answer."""
        self._next[verb].append(Fault(FaultKind.CUT_SHORT, jobs_done=jobs_done))

    def cancel_first(self) -> None:
        """Let the jobs of the next requeue_hold be cancelled after the client has read them and before they are requeued."""
        self._next["requeue_hold"].append(Fault(FaultKind.ENDED_FIRST))

    def delay_s(self, verb: str) -> float:
        """Return the additional duration of a call of the verb, in seconds."""
        delay_s = self._delay_s.get(verb, 0.0)
        self.slowed[verb] += delay_s > 0
        return delay_s

    def take(self, verb: str) -> Fault | None:
        """Return the fault for this call, once; None when there is none."""
        waiting = self._next[verb]
        if not waiting:
            return None
        fault = waiting.popleft()
        self.taken[fault.kind] += 1
        return fault
