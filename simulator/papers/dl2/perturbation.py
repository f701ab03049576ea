"""Errors of the stated epochs and variation of training speeds (DL2, section 6.4, figures 15 and 16)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from policies.model import FloatColumn
from simulator.traces.trace import NS_PER_S, Trace

_SPEEDS, _EPOCHS = 0, 1


@dataclass(frozen=True, eq=False)
class Perturbation:
    """A trace as its jobs run, and the estimates that follow from users' statements and types; an entry for each job.

    Invariant: the signs depend on the trace's name only, so every agent meets the same ones, at every size of the deviation.
    """

    trace: Trace
    """The trace with the durations at the varied speeds."""
    per_stated_epoch: FloatColumn
    """Epochs that the job trains, for each one that its user states."""
    usual_s: FloatColumn
    """Run time at the requested size and the average speed of the type."""

    @property
    def expected_s(self) -> FloatColumn:
        """Return the run time at the requested size that follows from the stated epochs and the average speed of the type."""
        return self.usual_s / self.per_stated_epoch


def perturbed(trace: Trace, speed_variation: float, epoch_error: float) -> Perturbation:
    """Return the trace with these relative deviations, each up or down with equal probability; 0 changes nothing."""
    speeds = 1.0 + speed_variation * _signs(trace, _SPEEDS)
    per_stated = 1.0 + epoch_error * _signs(trace, _EPOCHS)
    usual_s = trace.duration_ns / NS_PER_S
    if speed_variation:
        trace = replace(trace, duration_ns=np.maximum(np.rint(trace.duration_ns / speeds), 1).astype(np.int64))
    return Perturbation(trace, per_stated, usual_s)


def _signs(trace: Trace, of: int) -> FloatColumn:
    rng = np.random.default_rng((crc32(trace.name.encode()), of))
    signs: FloatColumn = rng.choice((-1.0, 1.0), len(trace))
    return signs
