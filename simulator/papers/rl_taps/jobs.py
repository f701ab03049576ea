"""The jobs of one sequence as columns, in the units of the environment: steps, cells, shares of a GPU's speed.

A **cell** is the work that one GPU does in one step at its advertised speed (appendix A), so a job of length L on its g requested
GPUs has L g cells (equation 11).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.errors import SettingError
from simulator.papers.rl_taps.options import RlTapsOptions
from simulator.traces.trace import NS_PER_S, Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
LENGTH = "length_steps"
"""Extra column of the generator's traces."""
_ROUNDED_S = 0.001


@dataclass(frozen=True, eq=False)
class Jobs:
    """Columns with an entry for each job, in order of arrival."""

    trace: Trace
    arrival: Ints
    """First step in which the job can run."""
    length: Floats
    """Steps on the requested GPUs at their advertised speed."""
    gpus: Ints
    """Requested GPUs."""
    reduction: Floats
    """Seconds of a reduction in one rack, before the factor sqrt(GPUs), for each second of computing: sr / (tt sqrt(n))."""
    ideal: Floats
    """Speed in cells a step alone in one rack on the requested GPUs, which is the cost of idling (equation 5)."""

    def __len__(self) -> int:
        return len(self.arrival)


def jobs_of(trace: Trace, options: RlTapsOptions) -> Jobs:
    """Return the jobs of a trace. Raises SettingError for a job that requests more GPUs than a slot shows."""
    largest = int(trace.num_gpus.max(initial=0))
    if largest > options.widest:
        raise SettingError(
            f"{trace.name}: a job requests {largest} GPUs, and slots show {options.widest}; give widest={largest}"
        )
    if LENGTH in trace.extra:
        length = np.array(trace.extra[LENGTH], dtype=np.float64)
    else:
        length = trace.duration_ns / NS_PER_S * options.efficiency / options.step_s
    # Generated times are whole milliseconds, and steps are not.
    arrival = np.ceil((trace.submit_ns / NS_PER_S - _ROUNDED_S) / options.step_s).astype(np.int64)
    known: dict[tuple[str, int], float] = {}
    reduction = np.empty(len(arrival))
    for job, kind in enumerate(zip(trace.model, trace.batch_size.tolist(), strict=True)):
        if kind not in known:
            known[kind] = _reduction(*kind, options)
        reduction[job] = known[kind]
    gpus = trace.num_gpus.astype(np.int64)
    ideal = options.efficiency * gpus / (1.0 + np.where(gpus > 1, reduction * np.sqrt(gpus), 0.0))
    return Jobs(trace, arrival, length, gpus, reduction, ideal)


def _reduction(model: str, batch: int, options: RlTapsOptions) -> float:
    profile = options.profiles.of(model)
    return options.profiles.ring.seconds(1, profile.bytes, 1) / profile.step_s(0.0, batch)
