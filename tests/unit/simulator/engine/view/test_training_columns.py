"""Epochs and progress of simulated jobs: those of traces that state epochs, and of no others."""

from __future__ import annotations

import math

import numpy as np

from policies.api import Decision
from policies.model import Placement
from simulator.cluster.cluster import parse_cluster
from simulator.engine.simulation import Simulation
from tests.unit.simulator.engine.build import FREE, trace_of


def test_progress_is_the_share_of_the_stated_epochs() -> None:
    # Given three jobs of which two have stated epochs, and the first runs
    trace = trace_of((0, 4, 100), (0, 4, 100), (50, 1, 10), extra={"epochs": ["20", "5", ""]})
    made = Simulation(trace, parse_cluster("1x4"), None, FREE)
    assert made.advance()
    made.state()
    made.apply(Decision({0: Placement((0,), (4,))}))
    # When half of its work is done
    assert made.advance()
    jobs = made.state().jobs
    # Then the state shows it
    np.testing.assert_array_equal(jobs.epochs, [20.0, 5.0, math.nan])  # type: ignore[arg-type]
    np.testing.assert_allclose(jobs.progress, [0.5, 0.0, math.nan])  # type: ignore[arg-type]


def test_without_epochs_nothing_discloses_the_true_duration() -> None:
    made = Simulation(trace_of((0, 4, 100)), parse_cluster("1x4"), None, FREE)
    assert made.advance()
    assert made.state().jobs.epochs is made.state().jobs.progress is None
