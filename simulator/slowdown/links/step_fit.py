"""The fit of max-min sharing: the computing time of a step, the bytes that it sends, and the share that is hidden.

A row is a step's time at a known rate of the ring. The law of max_min.py, c + t - o min(c, t) with t = traffic / rate, is the
larger of c + (1 - o) t and (1 - o) c + t. So for a given o, the best c and bytes are non-negative least squares over each row's
larger side; o is tried in steps of 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.slowdown.fitting.held_out import FitReport, report, split
from simulator.slowdown.fitting.least_squares import nonnegative
from simulator.slowdown.links.ring import GB
from simulator.slowdown.profiles.model_profiles import ModelProfile

_TRIES = 21
_ROUNDS = 20


@dataclass(frozen=True, slots=True)
class StepRow:
    """One measured step."""

    model: str
    nodes: int
    """Number of nodes; a job on 1 node sends nothing."""
    gbs: float
    """Rate of its ring, GB/s: that of the narrowest link, or of the job's share of it. Not used for one node."""
    step_s: float


def fit(rows: Sequence[StepRow], seed: int = 0) -> tuple[dict[str, ModelProfile], FitReport]:
    """Fit `compute_s`, `bytes` and `overlap` of each model by the relative error; other fields have their defaults."""
    fitted, held_out = split(rows, lambda row: row.step_s, seed)
    found = {
        model: _profile([row for row in fitted if row.model == model])
        for model in dict.fromkeys(row.model for row in fitted)
    }

    def predicted(row: StepRow) -> float | None:
        profile = found.get(row.model)
        return profile.step_s(profile.bytes * per_byte_s(row)) if profile else None

    return found, report(fitted, held_out, predicted, lambda row: row.step_s, seed)


def merged(measured: Mapping[str, ModelProfile], known: Mapping[str, ModelProfile]) -> dict[str, ModelProfile]:
    """Return the measured profiles, with the other fields from the known profiles."""
    return {
        model: replace(
            known.get(model, profile),
            compute_s=profile.compute_s,
            bytes=profile.bytes,
            overlap=profile.overlap,
            batch=0,
        )
        for model, profile in measured.items()
    }


def per_byte_s(row: StepRow) -> float:
    """Return the seconds that a byte of gradients takes around the ring."""
    return 2 * (row.nodes - 1) / row.nodes / (row.gbs * GB) if row.nodes > 1 else 0.0


def _profile(rows: Sequence[StepRow]) -> ModelProfile:
    best, least = ModelProfile(0.0, 0.0), float("inf")
    for at in range(_TRIES):
        overlap = at / (_TRIES - 1)
        compute_s, size = _at_overlap(rows, overlap)
        profile = ModelProfile(compute_s, size, overlap=overlap)
        error = sum((profile.step_s(size * per_byte_s(row)) / row.step_s - 1) ** 2 for row in rows)
        if error < least * (1 - 1e-9):
            best, least = profile, error
    return best


def _at_overlap(rows: Sequence[StepRow], overlap: float) -> tuple[float, float]:
    """Return the computing time and the bytes that fit best for that overlap."""
    compute_s = min(row.step_s for row in rows)
    unit = max(per_byte_s(row) for row in rows)
    size = max(0.0, max(row.step_s for row in rows) - compute_s) / unit if unit else 0.0
    for _ in range(_ROUNDS):
        terms = []
        for row in rows:
            per_byte = per_byte_s(row)
            hidden = 1 - overlap
            pair = (1.0, hidden * per_byte) if compute_s >= size * per_byte else (hidden, per_byte)
            terms.append((pair[0] / row.step_s, pair[1] * GB / row.step_s))
        new_compute, new_size = (float(value) for value in nonnegative(np.array(terms), np.ones(len(rows))))
        new_size *= GB
        if abs(new_compute - compute_s) <= 1e-12 * compute_s and abs(new_size - size) <= 1e-12 * size:
            break
        compute_s, size = new_compute, new_size
    return compute_s, size
