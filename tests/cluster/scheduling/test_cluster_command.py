"""On a real Slurm: `headway cluster` writes what the simulator reads."""

from __future__ import annotations

from pathlib import Path

from simulator.cluster.cluster import read_cluster
from tests.cluster.live import live


def test_the_cluster_that_runs_is_one_to_simulate(tmp_path: Path) -> None:
    with live(policy=None, controller=False) as world:
        names = list(world.cluster.node_names)
        switches = tmp_path / "topology.conf"
        switches.write_text(f"SwitchName=a Nodes={names[0]} LinkSpeed=40\nSwitchName=b Nodes={','.join(names[1:])}\n")
        reported = {
            "flat": world.headway.headway("cluster").stdout,
            "switches": world.headway.headway("cluster", "--topology-conf", str(switches)).stdout,
        }
        gpus = len(names) * 8
    for kind, text in reported.items():
        mine = tmp_path / f"{kind}.toml"
        mine.write_text(text)
        cluster = read_cluster(mine)
        assert (list(cluster.names), cluster.num_gpus, cluster.topology.kind) == (names, gpus, kind)
