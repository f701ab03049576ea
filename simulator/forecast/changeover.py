"""Time between the end of a job and the start of the next one on its GPUs, drawn from the times that were measured before.

It has two parts, which are measured and drawn apart: until the scheduler knows the GPUs as free (Slurm's epilog, and the time until
Slurm is read again), and from there to the start of the next job (the decision, its way to Slurm, and Slurm's own scheduling).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from policies.model import FloatColumn


def _none() -> FloatColumn:
    return np.zeros(0)


@dataclass(frozen=True, eq=False)
class Changeover:
    """Measured times, seconds, which may have an upper limit. Slurm gives whole seconds, so one time may be up to 1 s below 0.

    Empty: that part takes no time.
    """

    free_s: FloatColumn = field(default_factory=_none)
    """From the end of a job until its GPUs were known to be free."""
    start_s: FloatColumn = field(default_factory=_none)
    """From the state in which a decision starts a job until Slurm has started it."""

    def draw(self, jobs: int, rng: np.random.Generator) -> FloatColumn:
        """Return how long each job's GPUs stay empty after its end, seconds, 0 or more."""
        return np.maximum(_drawn(self.free_s, jobs, rng) + _drawn(self.start_s, jobs, rng), 0.0)

    def draw_start(self, jobs: int, rng: np.random.Generator) -> FloatColumn:
        """Return the time that the start of each job takes at least, seconds, 0 or more, also where its GPUs are free already."""
        return np.maximum(_drawn(self.start_s, jobs, rng), 0.0)


def _drawn(times_s: FloatColumn, jobs: int, rng: np.random.Generator) -> FloatColumn:
    return rng.choice(times_s, jobs) if len(times_s) else np.zeros(jobs)
