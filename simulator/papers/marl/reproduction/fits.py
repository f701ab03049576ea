"""Table III as a setting: the errors of the interference model and of other fits on slowdowns measured on a machine.

The contenders are the fits, and the seeds draw which measurements they have not seen. `measured again` is the error of a second
measurement of the same jobs as a prediction of the first: a fit that has a smaller one describes noise.
"""

from __future__ import annotations

import numpy as np

from policies.learned.training.systems import TEST_SEEDS
from simulator.papers.marl.interference_fit.measuring import stored
from simulator.papers.marl.interference_fit.models import (
    CONSTANT,
    INTERFERENCE,
    LINEAR,
    MODELS,
    QUADRATIC,
    errors,
    errors_of,
)
from simulator.papers.marl.reproduction.settings import SLOWDOWN_ERROR, TIME_ERROR, TRAINED, with_other_figures
from simulator.reproducing.experiment import Contender, Kind, Run, Setting
from simulator.runs.progress import OnProgress

AGAIN = "measured again"
FITS = with_other_figures(
    TRAINED,
    "fits of slowdowns (table III)",
    f"{len(stored().rows)} emulated jobs beside others, and {stored().foreign:.1f} other runnable processes in the mean, on a "
    "machine without GPUs; a quarter held back",
    (SLOWDOWN_ERROR, TIME_ERROR),
)
_KINDS = {INTERFERENCE: Kind.OURS, LINEAR: Kind.BASELINE, QUADRATIC: Kind.BASELINE, CONSTANT: Kind.CONTROL}


def fits() -> tuple[Contender, ...]:
    """Return the fits, and the second measurement."""
    return (*(_fit(name) for name in MODELS), Contender(AGAIN, Kind.BOUND, _again))


def _fit(name: str) -> Contender:
    def run(_where: Setting, seed: int, _report: OnProgress | None) -> Run:
        return Run(errors(stored().rows, name, seed))

    return Contender(name, _KINDS.get(name, Kind.CONTROL), run)


def _again(_where: Setting, seed: int, _report: OnProgress | None) -> Run:
    """Return the errors over all rows, of the first seed alone: nothing is drawn."""
    if seed != TEST_SEEDS[0]:
        return Run({})
    measured = stored()
    return Run(errors_of(np.array(measured.again), np.array([row.slowdown for row in measured.rows])))
