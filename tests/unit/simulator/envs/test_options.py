"""Options of the environments."""

from __future__ import annotations

from simulator.cluster.cluster import Cluster, cluster_of
from simulator.envs.options import Slowdowns
from simulator.slowdown.placement.node_speed import NodeSpeed
from simulator.slowdown.profiles.papers import paper_profiles

SLOW = cluster_of({"nodes": [{"count": 1, "gpus": 4}, {"count": 1, "gpus": 4, "speed": 0.5}]})


def models(cluster: Cluster, *asked: str | NodeSpeed) -> list[str]:
    return [type(model).__name__ for model in Slowdowns(asked, cluster, paper_profiles()).fresh()]


def test_the_speeds_of_nodes_count_as_in_runs() -> None:
    given = NodeSpeed(SLOW.topology, paper_profiles(), sensitivity="profile")
    assert models(SLOW) == ["NodeSpeed"]
    assert models(SLOW, "locality") == ["Locality", "NodeSpeed"]
    assert models(SLOW, "node-speed") == models(SLOW, given) == ["NodeSpeed"]
    assert models(SLOW, "none") == []
    assert models(Cluster.uniform(2, 4), "locality") == ["Locality"]
