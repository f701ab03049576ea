"""Step times and traffic of jobs, on which speeds depend: as measured, else typical values.

Values that are NaN or missing are replaced by typical ones: the median of the models in the state, else `TYPICAL`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from statistics import median

import numpy as np

from policies.model import ClusterState, FloatColumn, ProfileTable
from policies.state.pair_ratios import key_of


@dataclass(frozen=True, slots=True)
class StepModel:
    """Time and traffic of one job's training step."""

    compute_s: float
    bytes: float
    overlap: float = 0.0
    hiding: float = 1.0

    def step_s(self, communicate_s: float) -> float:
        """Return the seconds of a step that communicates for so long."""
        hidden = self.overlap * min(self.hiding * self.compute_s, communicate_s)
        return self.compute_s + communicate_s - hidden


TYPICAL = StepModel(0.69, 775e6)
"""The medians of contention_rl, table I."""


class StepModels:
    """Step models of all jobs: as measured, or with typical values. Bound: the jobs of the state."""

    def __init__(self, state: ClusterState) -> None:
        profiles = state.profiles
        self.ring = None if profiles is None else profiles.ring
        self._model: list[int] = [-1] * len(state.jobs) if profiles is None else profiles.of_job.tolist()
        self._names = [] if profiles is None else [key_of(model) for model in profiles.models]
        self._table, usual, missing = _table(profiles)
        self._table.append(usual)  # the row of jobs without a profile: -1
        self._batch, self._usual_batch = _batches(profiles, len(state.jobs), len(self._table))
        self.unmeasured = {row for row, model in enumerate(self._model) if model < 0 or missing[model]}
        """Rows of jobs for whose model computing time or bytes were not measured."""
        self._scaled: dict[tuple[int, float], StepModel] = {}
        self._idents: dict[tuple[int, float], int] = {}

    def name(self, row: int) -> str:
        """Return the job's model, as the table of pairs names it."""
        model = self._model[row]
        return self._names[model] if model >= 0 else ""

    def kind(self, row: int) -> tuple[int, float]:
        """Return the job's model and batch."""
        model = self._model[row]
        batch = self._batch[row] if self._usual_batch[model] else 0.0
        return model, batch if batch > 0 else 0.0

    def ident(self, row: int) -> int:
        """Return the number of the job's kind."""
        return self._idents.setdefault(self.kind(row), len(self._idents))

    def of(self, row: int) -> StepModel:
        """Return the step model of that job, with its batch."""
        model, batch = kind = self.kind(row)
        step_model = self._scaled.get(kind)
        if step_model is None:
            step_model = self._table[model]
            if batch:
                compute_s = step_model.compute_s * batch / self._usual_batch[model]
                step_model = StepModel(compute_s, step_model.bytes, step_model.overlap, step_model.hiding)
            self._scaled[kind] = step_model
        return step_model


def _table(profiles: ProfileTable | None) -> tuple[list[StepModel], StepModel, list[bool]]:
    """Return the step models, the one for unknown models, and for each model whether it was not measured."""
    if profiles is None:
        return [], TYPICAL, []
    count = len(profiles.models)
    columns = (profiles.compute_s, profiles.bytes_per_step, profiles.overlap, profiles.hiding)
    usual = [
        median_of(column, default)
        for column, default in zip(
            columns, (TYPICAL.compute_s, TYPICAL.bytes, TYPICAL.overlap, TYPICAL.hiding), strict=True
        )
    ]
    filled = [filled_of(column, count, number) for column, number in zip(columns, usual, strict=True)]
    rows = [StepModel(*row) for row in zip(*(column.tolist() for column in filled), strict=True)]
    missing = np.isnan(profiles.compute_s) | np.isnan(profiles.bytes_per_step)
    return rows, StepModel(*usual), missing.tolist()


def _batches(profiles: ProfileTable | None, jobs: int, models: int) -> tuple[list[float], list[float]]:
    """Return the examples on a GPU for each job, and for each model's step; 0: not known, or it does not matter."""
    if profiles is None or profiles.batch_per_gpu is None or profiles.job_batch_per_gpu is None:
        return [0.0] * jobs, [0.0] * models
    return np.nan_to_num(profiles.job_batch_per_gpu).tolist(), [*np.nan_to_num(profiles.batch_per_gpu).tolist(), 0.0]


def median_of(column: FloatColumn | None, default: float) -> float:
    """Return the median of the known entries; the default where none is known."""
    known = [] if column is None else [value for value in column.tolist() if not isnan(value)]
    return median(known) if known else default


def filled_of(column: FloatColumn | None, count: int, default: float) -> FloatColumn:
    """Return that column with its median for NaN; all entries are the default where none is known."""
    usual = median_of(column, default)
    return np.full(count, usual) if column is None else np.where(np.isnan(column), usual, column)
