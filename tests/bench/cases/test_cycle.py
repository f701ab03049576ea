"""The benchmark of the decision cycle runs on a tiny cluster."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from slurm.testbed.installation import Installation
from tests.bench.cases import cycle


@pytest.mark.parametrize("scenario", cycle.SCENARIOS)
async def test_every_phase_is_measured_and_the_policy_server_decides(scenario: cycle.Scenario) -> None:
    # Not in pytest's own folder: the path of a socket must be short.
    with Installation.prepare("bench-toy", parent=Path(tempfile.gettempdir())) as headway:
        headway.start_policy("srtf")
        small = cycle.Scenario(scenario.name, running=5, full=scenario.full)
        times = await cycle.measure(small, headway, cycles=2, pending=150, nodes=60)
    assert len(times.totals) == 2
    assert set(times.first) == set(times.phases)
    assert all(seconds > 0 for phase in times.phases.values() for seconds in phase)
    assert max(times.starts) > 0
