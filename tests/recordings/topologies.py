"""Topologies of four nodes in each way that releases of Slurm can be given one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Topology:
    """Files and settings that give Slurm a topology."""

    plugin: str = ""
    """TopologyPlugin; empty for the release's own."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Name of a file beside slurm.conf → its text."""


_TREE = "SwitchName=leaf0 Nodes=n[1-2]\nSwitchName=leaf1 Nodes=n[3-4]\nSwitchName=top Switches=leaf[0-1]\n"
_BLOCKS = "BlockName=b0 Nodes=n[1-2]\nBlockName=b1 Nodes=n[3-4]\nBlockSizes=2\n"
_YAML_TREE = """\
- topology: racks
  cluster_default: true
  tree:
    switches:
    - switch: leaf0
      nodes: n1,n3
    - switch: leaf1
      nodes: n2,n4
    - switch: top
      children: leaf[0-1]
"""
_YAML_BLOCKS = """\
- topology: blocks
  cluster_default: true
  block:
    block_sizes:
    - 2
    blocks:
    - block: b0
      nodes: n[1-2]
    - block: b1
      nodes: n[3-4]
"""
_YAML_RING = """\
- topology: rings
  cluster_default: true
  ring:
    rings:
    - ring: r0
      nodes: n[1-4]
"""
_YAML_TORUS = """\
- topology: tori
  cluster_default: true
  torus3d:
    toruses:
    - name: t0
      dims: {x: 2, y: 2, z: 1}
      nodes: n[1-4]
      placements:
      - dims: {x: 2, y: 1, z: 1}
      - dims: {x: 1, y: 1, z: 1}
"""

TOPOLOGIES: Mapping[str, Topology] = {
    "none": Topology(),
    "tree": Topology("topology/tree", {"topology.conf": _TREE}),
    "block": Topology("topology/block", {"topology.conf": _BLOCKS}),
    "yaml-tree": Topology("", {"topology.yaml": _YAML_TREE}),
    "yaml-tree-over-conf": Topology("topology/tree", {"topology.yaml": _YAML_TREE, "topology.conf": _TREE}),
    "yaml-block": Topology("", {"topology.yaml": _YAML_BLOCKS}),
    "yaml-ring": Topology("", {"topology.yaml": _YAML_RING}),
    "yaml-torus": Topology("", {"topology.yaml": _YAML_TORUS}),
}
"""Name of a recording → its topology. A release that does not know a plugin or a file does not start with it, or ignores it."""
