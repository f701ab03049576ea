"""The links of a cluster, inside nodes and between them, and the paths over them.
Imports `errors`; of other packages `policies`.
"""

from simulator.cluster.topology.bcube import BCubeRoutes, bcube
from simulator.cluster.topology.generators import fat_tree, flat, rack_tree, rl_taps, vl2
from simulator.cluster.topology.topology import Inside, Routes, Topology
from simulator.cluster.topology.tree import TreeRoutes

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
