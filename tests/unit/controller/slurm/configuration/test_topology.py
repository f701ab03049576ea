"""`scontrol show topology` of several releases, as switches."""

from __future__ import annotations

import pytest

from controller.base.errors import ConfigurationError
from controller.profiles.racks import racks_of
from controller.slurm.configuration.topology import as_topology_conf, switches_of
from controller.slurm.scontrol.client import CommandLineClient
from tests.unit.controller.slurm.scontrol.slurmctld import Slurmctld
from tests.unit.controller.slurm.scontrol.text import CLOCK

# Slurm 25.11.7 with a topology.yaml, whose speeds are not known, and 22.05.8 with a topology.conf.
YAML = (
    "SwitchName=leaf0 Level=0 LinkSpeed=0 Nodes=n[1,3]\nSwitchName=leaf1 Level=0 LinkSpeed=0 Nodes=n[2,4]\n"
    "SwitchName=top Level=1 LinkSpeed=0 Nodes=n[1-4] Switches=leaf[0-1]\n"
)
CONF = (
    "SwitchName=leaf0 Level=0 LinkSpeed=100 Nodes=n[1-2] \nSwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[3-4] \n"
    "SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[0-1] \n"
)
BLOCKS = (
    "BlockName=b1 BlockIndex=0 Nodes=n[1-4] BlockSize=4\nBlockName=b2 BlockIndex=1 Nodes=n[5-8] BlockSize=4\n"
    "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-8] BlockSize=8\n"
)


def test_a_tree_of_topology_yaml() -> None:
    racks = racks_of(switches_of(YAML))
    assert dict(racks.leaf) == {"n1": "leaf0", "n3": "leaf0", "n2": "leaf1", "n4": "leaf1"}
    assert racks.uplink_gbyte_s == {}


def test_a_tree_of_topology_conf_has_its_speeds() -> None:
    racks = racks_of(switches_of(CONF))
    assert racks.of("n2") == "leaf0"
    assert dict(racks.uplink_gbyte_s) == {"leaf0": 12.5}


def test_blocks_are_racks() -> None:
    assert dict(racks_of(switches_of(BLOCKS)).leaf) == {f"n{k}": "b1" if k < 5 else "b2" for k in range(1, 9)}


@pytest.mark.parametrize("kind", ["Ring", "Torus"])
def test_groups_of_other_topologies_are_racks(kind: str) -> None:
    shown = f"{kind}Name=r1 Nodes=n[1-2]\n{kind}Name=r2 LinkSpeed=9 Nodes=n[3-4]\n{kind}Name=empty\n"
    assert as_topology_conf(shown) == "SwitchName=r1 Nodes=n[1-2]\nSwitchName=r2 Nodes=n[3-4]"


@pytest.mark.parametrize("shown", ["", "\n", "scontrol: error: No topology information available\n"])
def test_no_topology(shown: str) -> None:
    assert switches_of(shown) == []


def test_an_answer_that_is_no_tree_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"scontrol show topology: .*n1 is below leaf0 and other"):
        switches_of(YAML + "SwitchName=other Level=0 LinkSpeed=0 Nodes=n1\n")


async def test_the_command_line_asks_for_it() -> None:
    slurm = Slurmctld()
    client = CommandLineClient(slurm, CLOCK)
    assert await client.topology() == ""
    slurm.topology = YAML
    assert await client.topology() == YAML
