"""Speed that jobs keep at a distance, computed by hand: NICs of 10 GB/s and uplinks of 5 between racks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from policies.placement.best_fit import Capacity
from policies.speeds.distance import far_speeds
from tests.unit.policies.states.cluster import Job, Node
from tests.unit.policies.states.profiled import LOUD, QUIET, state_of

JOBS = [(Job(gpus=8), LOUD), (Job(gpus=16), LOUD), (Job(gpus=8), QUIET), (Job(gpus=1), LOUD)]


def test_a_step_over_the_narrowest_links_against_the_best() -> None:
    """10 GB take 2 s over an uplink and 1 s over a NIC; a step computes for 0.2 s."""
    two_racks = far_speeds(Capacity(state_of([Node()] * 4, JOBS, rack=(0, 0, 1, 1))))
    assert two_racks == pytest.approx([0.2 / 2.2, 1.2 / 2.2, 1 / 1.0002, 1.0])
    one_rack = far_speeds(Capacity(state_of([Node()] * 4, JOBS)))
    assert one_rack == pytest.approx([0.2 / 1.2, 1.0, 1 / 1.0001, 1.0])


def test_a_measured_curve_counts_where_there_is_one() -> None:
    state = state_of([Node()] * 4, JOBS, rack=(0, 0, 1, 1))
    assert state.profiles is not None
    curves = np.array([[1.0, 0.9, 0.5, 0.25], [np.nan] * 4])
    measured = dataclasses.replace(state, profiles=dataclasses.replace(state.profiles, locality=curves))
    assert far_speeds(Capacity(measured)) == pytest.approx([0.25, 0.5, 1 / 1.0002, 1.0])
