"""The steps that a run has done in the end: what a program had made after its last checkpoint, and lost, does not count."""

from __future__ import annotations

from dataclasses import dataclass

from nodeagent.wire.bounds import MAX_STEPS


@dataclass(slots=True)
class StepsDone:
    """Counts over the programs of one run, which come one after the other.

    A program that resumed from a checkpoint goes on from there: the programs whose work the checkpoint holds count with it. Any
    other program begins anew, and its steps are added. Invariant: the total is at most MAX_STEPS; it falls only when a program
    resumes.
    """

    total: int = 0
    _start: int = 0
    """Steps done at the checkpoint from which the present program resumed; 0 = it began anew."""
    _before: int = 0
    """Total at the begin of the present program."""
    _apart: int = 0
    """Steps of the programs whose work is not in the checkpoints of the present one, if it resumed from one."""

    def begin_program(self) -> None:
        """Begin the first program, or another one; from where it begins is known with its first step."""
        self._apart = self._base
        self._before = self.total
        self._start = 0

    def note(self, start: int | None, steps: int) -> None:
        """Take the steps that the present program has made, and those done at the checkpoint from which it resumed.

        `start`: 0 = it began anew; None = no connected process knows, so what was known before still holds.
        """
        if start is not None:
            self._start = start
        self.total = min(self._base + self._start + steps, MAX_STEPS)

    @property
    def _base(self) -> int:
        return self._apart if self._start else self._before
