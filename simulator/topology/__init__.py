"""What connects the GPUs of a cluster: links inside nodes, between them, and the paths over them."""

from simulator.topology.bcube import BCubeRoutes, bcube
from simulator.topology.generators import fat_tree, flat, rack_tree, rl_taps, vl2
from simulator.topology.topology import Inside, Routes, Topology
from simulator.topology.tree import TreeRoutes

__all__ = [
    "BCubeRoutes",
    "Inside",
    "Routes",
    "Topology",
    "TreeRoutes",
    "bcube",
    "fat_tree",
    "flat",
    "rack_tree",
    "rl_taps",
    "vl2",
]
