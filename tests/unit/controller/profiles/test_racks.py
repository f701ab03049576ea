"""Racks and the speeds of their uplinks stand in states as Slurm's tree of switches has them."""

from __future__ import annotations

import math

from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observer
from controller.profiles.racks import ONE_RACK, racks_of
from controller.state.ledger import Ledger
from policies.speeds.links import NetworkLinks
from policies.wire.messages import parse_state, serialize_state, state_digest
from simulator.cluster.topology.slurm import parse_switches
from tests.unit.controller.examples.build import snapshot

TREE = """
SwitchName=leaf1 Nodes=n[1-2] LinkSpeed=80
SwitchName=leaf2 Nodes=n3 LinkSpeed=16
SwitchName=leaf3 Nodes=x[1-9]
SwitchName=top Switches=leaf[1-3] LinkSpeed=400
"""
NAMES = ("n1", "n2", "n3", "n4", "x1")


def test_nodes_of_one_leaf_switch_are_a_rack_and_nodes_without_a_switch_are_another() -> None:
    assert racks_of(parse_switches(TREE)).numbers(NAMES).tolist() == [0, 0, 1, 2, 3]


def test_speeds_of_uplinks_are_gigabytes_a_second_where_they_are_known() -> None:
    speeds = racks_of(parse_switches(TREE)).speeds(NAMES)
    assert speeds is not None
    assert speeds[:3].tolist() == [10.0, 10.0, 2.0]
    assert [math.isnan(speed) for speed in speeds[3:]] == [True, True]


def test_the_top_switch_has_no_uplink() -> None:
    racks = racks_of(parse_switches("SwitchName=all Nodes=n[1-4] LinkSpeed=100"))
    assert (racks.numbers(NAMES[:4]).tolist(), racks.speeds(NAMES)) == ([0, 0, 0, 0], None)


def test_without_switches_all_nodes_are_one_rack() -> None:
    assert (ONE_RACK.numbers(NAMES).tolist(), ONE_RACK.speeds(NAMES)) == ([0] * 5, None)


def test_policies_get_racks_and_uplinks_over_the_wire() -> None:
    knowledge = Knowledge()
    observer = Observer(knowledge)
    before = observer.observe(snapshot(), Ledger(), frozenset({"dl"})).state
    assert len(set(before.nodes.rack.tolist())) == 1 and before.nodes.uplink_gbyte_s is None
    knowledge.set_topology(racks_of(parse_switches(TREE)))
    state = observer.observe(snapshot(), Ledger(), frozenset({"dl"})).state
    served = parse_state(serialize_state(state))
    assert state_digest(served) == state_digest(state)
    network = NetworkLinks(served)
    first, second, third = (served.nodes.names.index(name) for name in ("n1", "n2", "n3"))
    assert (network.racks((first, second)), network.racks((first, third))) == (1, 2)
    # A job on n1 and n3 shares two NICs and both uplinks; the narrower carries 2 GB/s.
    links = network.links((first, third))
    assert len(links) == 4 and min(network.capacity[link] for link in links) == 2.0
