"""Forty random stories on the embedded Slurm break no promise."""

from __future__ import annotations

import pytest

from tests.campaign.seeds.check import check_effects, check_story


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2120, 2160))
def test_no_promise_is_broken(seed: int) -> None:
    check_story(seed)


@pytest.mark.slow
def test_every_fault_takes_effect() -> None:
    check_effects()
