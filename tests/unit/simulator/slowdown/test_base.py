"""Each model against its equation, worked out by hand."""

from __future__ import annotations

import pytest

from simulator.slowdown.base import Model


def test_a_model_without_factors_cannot_be_made() -> None:
    class Unfinished(Model):
        """A model that lacks `_computed`."""

    with pytest.raises(TypeError, match="_computed"):
        Unfinished()  # type: ignore[abstract] # what the test is about
