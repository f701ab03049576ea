"""The models of table III, and their errors on measurements that they have not seen.

Every model predicts the slowdown S of a worker from the cores of others that count U_c, its own cores C_J, and the same of PCIe,
U_p and P_J. All are fitted by least squares on S, on the same rows:

    interference model       a exp(b U_c + c C_J) + d U_p + e P_J + f          (section V)
    without PCIe             a exp(b U_c + c C_J) + f
    without CPU              d U_p + e P_J + f
    linear                   linear in the four                                (TRACON's linear model)
    quadratic                all products of at most two of the four           (TRACON's nonlinear model)
    constant                 f; a control that knows nothing

The paper does not say of what its error is a share. Here are two: the mean error as a share of the mean slowdown, and the error of
the time, |predicted - measured| / (1 + S), in the mean. Both are of a quarter of the rows, which a seed draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import TypeAlias

import numpy as np

from policies.model import FloatColumn
from simulator.slowdown.fitting.held_out import split
from simulator.slowdown.fitting.least_squares import Matrix
from simulator.slowdown.neighbours.interference import Exponents, InterferenceRow, fit_terms

INTERFERENCE, WITHOUT_PCIE, WITHOUT_CPU = "interference model", "interference model without PCIe", "without CPU"
LINEAR, QUADRATIC, CONSTANT = "linear model", "quadratic model", "constant"
_MOST_EXPONENT = 50.0
Rows = Sequence[InterferenceRow]
Terms: TypeAlias = Callable[[Matrix, Exponents], Matrix]
"""Terms of a model, in which it is linear, from the columns U_c, C_J, U_p and P_J: a row for each measurement."""


def _exponential(columns: Matrix, exponents: Exponents) -> Matrix:
    found: Matrix = np.exp(np.minimum(columns[:, :2] @ np.array(exponents), _MOST_EXPONENT))[:, None]
    return found


def _one(columns: Matrix, _exponents: Exponents) -> Matrix:
    return np.ones((len(columns), 1))


def _all(columns: Matrix, _exponents: Exponents) -> Matrix:
    return columns


def _pcie(columns: Matrix, _exponents: Exponents) -> Matrix:
    return columns[:, 2:]


def _products(columns: Matrix, _exponents: Exponents) -> Matrix:
    pairs = combinations_with_replacement(range(columns.shape[1]), 2)
    return np.stack([columns[:, one] * columns[:, other] for one, other in pairs], axis=1)


def _sum(*parts: Terms) -> Terms:
    return lambda columns, exponents: np.concatenate([part(columns, exponents) for part in parts], axis=1)


MODELS: Mapping[str, Terms] = {
    INTERFERENCE: _sum(_exponential, _pcie, _one),
    WITHOUT_PCIE: _sum(_exponential, _one),
    WITHOUT_CPU: _sum(_pcie, _one),
    LINEAR: _sum(_all, _one),
    QUADRATIC: _sum(_all, _products, _one),
    CONSTANT: _one,
}
_WITH_EXPONENTS = (INTERFERENCE, WITHOUT_PCIE)


def _columns(rows: Rows) -> Matrix:
    return np.array([(row.others_cpu, row.own_cpu, row.others_pcie, row.own_pcie) for row in rows])


def errors(rows: Rows, model: str, seed: int) -> dict[str, float]:
    """Return the errors of a model: `slowdown_error` as a share of the mean slowdown, and `time_error`. Raises SlowdownError for
    too few rows."""
    fitted, held_out = split(rows, lambda row: 1 + row.slowdown, seed)
    terms, columns = MODELS[model], _columns(fitted)
    if model in _WITH_EXPONENTS:
        exponents, found = fit_terms(fitted, lambda _rows, exponents: terms(columns, exponents))
    else:
        exponents = (0.0, 0.0)
        found = np.linalg.lstsq(terms(columns, exponents), np.array([row.slowdown for row in fitted]), rcond=None)[0]
    predicted = terms(_columns(held_out), exponents) @ found
    return errors_of(predicted, np.array([row.slowdown for row in held_out]))


def errors_of(predicted: FloatColumn, measured: FloatColumn) -> dict[str, float]:
    """Return the errors of predicted slowdowns."""
    missed = np.abs(predicted - measured)
    return {
        "slowdown_error": float(missed.mean() / np.abs(measured).mean()),
        "time_error": float((missed / (1.0 + measured)).mean()),
    }
