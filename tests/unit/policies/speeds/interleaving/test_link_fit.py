"""Steps of jobs as CASSINI's scores see them, against those that predicted speeds are made of."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from policies.model import ClusterState, Placement, ProfileTable
from policies.speeds.interleaving.link_fit import LinkFit
from policies.state.ring_reduction import RL_TAPS_RING, RingTime
from tests.unit.policies.states.cluster import Job, Node, cluster

BOTH = Placement((0, 1), (4, 4))


def state(ring: RingTime | None) -> ClusterState:
    """A job of 100 MB and 1 s of computing, on nodes with NICs of 12.5 GB/s and PCIe of 5."""
    nothing = np.full(1, math.nan)
    profiles = ProfileTable(
        models=("it",),
        of_job=np.array([0]),
        locality=np.full((1, 4), math.nan),
        bytes_per_step=np.array([100e6]),
        compute_s=np.array([1.0]),
        cpu_cores=nothing,
        pcie_gbyte_s=nothing,
        ring=ring,
    )
    found = cluster([Node()] * 2, [Job(gpus=8)])
    nodes = dataclasses.replace(found.nodes, nic_gbyte_s=np.full(2, 12.5), pcie_gbyte_s=np.full(2, 5.0))
    return dataclasses.replace(found, nodes=nodes, profiles=profiles)


def test_pcie_limits_a_reduction_only_without_a_measured_ring() -> None:
    nothing = LinkFit(state(None), {})
    assert nothing.step_s(0, BOTH) == pytest.approx(1.0 + 0.1 / 5.0)
    measured = LinkFit(state(RL_TAPS_RING), {})
    assert measured.step_s(0, BOTH) == pytest.approx(1.0 + RL_TAPS_RING.seconds(8, 100e6, 1))
