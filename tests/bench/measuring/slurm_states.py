"""The sequence of a job's states in Slurm's own records during an operation."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.bench.measuring.grounds import NotThereError, Side

EVERY_S = 0.05
"""Interval of the polls; a state may be seen later by this, plus the time of scontrol."""


@dataclass(slots=True)
class SlurmStates:
    """Polls scontrol from the begin of the context to its end.

    Invariant of `seen`: (seconds since the Unix epoch when scontrol had said so, state), no state twice in a row.
    """

    side: Side
    job_id: str
    seen: list[tuple[float, str]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def began_s(self, state: str) -> float:
        """Return the time at which it was first seen in that state after another one. Raises NotThereError."""
        for at_s, found in self.seen[1:]:
            if found == state:
                return at_s
        raise NotThereError(f"job {self.job_id} was never seen {state}: {self.seen}")

    def lasted_s(self, state: str) -> float:
        """Return the time for which it was seen in that state after another one; 0 = it was over between two polls."""
        times = [at_s for at_s, _ in self.seen]
        for (began_s, found), ended_s in zip(self.seen[1:], times[2:], strict=False):
            if found == state:
                return ended_s - began_s
        return 0.0

    def _watch(self) -> None:
        due_s = time.monotonic()
        while not self._over.wait(max(due_s - time.monotonic(), 0.0)):
            due_s = max(due_s + EVERY_S, time.monotonic())
            self._look()

    def _look(self) -> None:
        argv = ["scontrol", "-o", "show", "job", self.job_id]
        text = subprocess.run(
            argv, env=self.side.environment(), capture_output=True, text=True, timeout=30, check=True
        ).stdout
        state = next(word.removeprefix("JobState=") for word in text.split() if word.startswith("JobState="))
        if not self.seen or self.seen[-1][1] != state:
            self.seen.append((time.time(), state))
