"""Statistics of the benchmarks."""

from __future__ import annotations

import pytest

from tests.bench.measuring.figures import Figure, percentile, spread


def test_percentiles_are_samples_and_never_flatter() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 50) == 50.0
    assert percentile(values, 99) == 99.0
    assert percentile([3.0, 1.0, 2.0], 99) == 3.0
    with pytest.raises(ValueError, match="no samples"):
        percentile([], 50)


def test_a_figure_without_a_target_is_neither_met_nor_missed() -> None:
    assert Figure("b", "n", 1.0, "s").met is None
    assert Figure("b", "n", 1.0, "s", at_most=1.0).met is True
    assert Figure("b", "n", 1.1, "s", at_most=1.0).met is False


def test_a_spread_names_extremes_and_number() -> None:
    assert spread([0.001, 0.003, 0.002], 1e3) == "least 1, median 2, most 3 of 3"
