"""Costs of stops: by the model's size, however its name is written."""

from __future__ import annotations

import pytest

from simulator.engine.stop_costs import StopCosts


@pytest.mark.parametrize("name", ["vgg16", "VGG16", "vgg-16", "VGG_16"])
def test_a_model_costs_the_same_however_it_is_written(name: str) -> None:
    assert StopCosts().seconds(name) == pytest.approx(20 + 2 * 138.4e6 * 12 / 1e9)


def test_a_model_that_is_not_in_the_table() -> None:
    assert StopCosts().seconds("my-model") == pytest.approx(20 + 2 * 100e6 * 12 / 1e9)
