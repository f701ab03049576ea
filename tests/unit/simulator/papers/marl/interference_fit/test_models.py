"""The fits of table III: each finds a law of its own form, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import SlowdownError
from simulator.papers.marl.interference_fit.models import (
    CONSTANT,
    INTERFERENCE,
    LINEAR,
    MODELS,
    QUADRATIC,
    WITHOUT_CPU,
    WITHOUT_PCIE,
    errors,
    errors_of,
)
from simulator.slowdown.neighbours.interference import InterferenceRow


def rows(kind: str, count: int = 80) -> list[InterferenceRow]:
    """Rows whose slowdowns follow a law of that kind."""
    rng = np.random.default_rng(0)
    found = []
    for cores, own, pcie, own_pcie in rng.random((count, 4)).tolist():
        slowdown = {
            "exponential": 0.1 * np.exp(3 * cores) + 0.4 * pcie - 0.1,
            "without pcie": 0.1 * np.exp(3 * cores) - 0.1,
            "pcie": 0.4 * pcie + 0.1,
            "linear": 0.3 * cores + 0.1 * own + 0.2 * pcie,
            "quadratic": 0.3 * cores * cores + 0.5 * pcie * own_pcie,
        }[kind]
        found.append(InterferenceRow(cores, own, pcie, own_pcie, slowdown))
    return found


@pytest.mark.parametrize(
    ("kind", "those_that_find_it"),
    [
        ("exponential", {INTERFERENCE}),
        ("without pcie", {INTERFERENCE, WITHOUT_PCIE}),
        ("pcie", {INTERFERENCE, WITHOUT_CPU, LINEAR, QUADRATIC}),
        # An exponential with a small exponent is nearly a line.
        ("linear", {INTERFERENCE, LINEAR, QUADRATIC}),
        ("quadratic", {QUADRATIC}),
    ],
)
def test_a_fit_finds_laws_of_its_form(kind: str, those_that_find_it: set[str]) -> None:
    found = {name: errors(rows(kind), name, seed=0)["slowdown_error"] for name in MODELS}
    assert {name for name, error in found.items() if error < 1e-3} == those_that_find_it, found
    assert all(error <= found[CONSTANT] * 1.1 for error in found.values())


def test_the_errors_by_hand() -> None:
    found = errors_of(np.array([0.5, 0.0]), np.array([0.4, 0.2]))
    assert found["slowdown_error"] == pytest.approx(0.15 / 0.3)
    assert found["time_error"] == pytest.approx((0.1 / 1.4 + 0.2 / 1.2) / 2)


def test_too_few_rows_are_an_error() -> None:
    with pytest.raises(SlowdownError, match="too few"):
        errors(rows("linear", 3), LINEAR, 0)
