"""Drawn speeds of nodes, and the table of cluster files that asks for them."""

from __future__ import annotations

import pytest

from simulator.cluster.cluster import cluster_of
from simulator.cluster.toml import cluster_table
from simulator.cluster.variability import MEASURED, drawn_speeds
from simulator.errors import ClusterError


def test_each_node_gets_a_measured_speed_and_the_same_seed_the_same() -> None:
    speeds = drawn_speeds([1.0] * 200, 1, 1.0)
    assert set(speeds) == {1.0 / time for time in MEASURED}
    assert drawn_speeds([1.0] * 200, 1, 1.0) == speeds != drawn_speeds([1.0] * 200, 2, 1.0)


def test_the_scale_multiplies_the_distance_from_the_median() -> None:
    assert set(drawn_speeds([1.0] * 200, 1, 2.0)) == {1.0 / (1.0 + 2 * (time - 1.0)) for time in MEASURED}
    assert min(drawn_speeds([0.5] * 200, 1, 1e6)) > 0
    assert max(drawn_speeds([0.5] * 200, 1, 1e6)) == 0.5 / 0.05


def test_a_cluster_file_can_vary_its_nodes() -> None:
    nodes = [{"count": 3, "gpus": 8}, {"count": 2, "gpus": 8, "speed": 0.5}]
    cluster = cluster_of({"nodes": nodes, "variability": {"seed": 3, "scale": 1.5}})
    assert cluster.speed == drawn_speeds([1.0, 1.0, 1.0, 0.5, 0.5], 3, 1.5) == cluster.topology.speed
    assert cluster_of(cluster_table(cluster)).speed == cluster.speed  # written as speeds of nodes
    assert cluster_of({"nodes": nodes}).speed == (1.0, 1.0, 1.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"sed": 1}, "variability.sed: is not a key here"),
        ({"scale": 0}, "variability.scale: 0 is not a positive number"),
        ({"seed": -1}, "variability.seed: -1 is not a whole number"),
        (3, "variability: is not a table"),
    ],
)
def test_a_wrong_table_is_refused(table: object, says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        cluster_of({"nodes": [{"count": 2, "gpus": 8}], "variability": table})
