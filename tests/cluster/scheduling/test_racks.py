"""On a real Slurm with a tree of switches: jobs stay in a rack where the links out of it are narrow."""

from __future__ import annotations

from tests.cluster.live import live


def test_a_job_over_two_nodes_stays_below_one_switch() -> None:
    with live(policy="contention-greedy", controller=False) as world:
        # Given racks of every other node, where the first two that are free are in different ones
        names = list(world.cluster.node_names)
        racks = [set(names[::2]), set(names[1::2])]
        lines = [f"SwitchName=leaf{at} Nodes={','.join(sorted(rack))} LinkSpeed=8" for at, rack in enumerate(racks)]
        conf = world.cluster.slurm_conf
        (conf.parent / "topology.conf").write_text("\n".join([*lines, "SwitchName=top Switches=leaf[0-1]", ""]))
        conf.write_text(conf.read_text() + "TopologyPlugin=topology/tree\n")
        world.cluster.kill_slurmctld()
        world.cluster.start_slurmctld()
        world.cluster.wait_idle()
        # When a job of two whole nodes comes
        world.headway.start_controller()
        world.until(lambda: "racks_known" in world.headway.log("controller"), "racks are known")
        job = world.sbatch("--nodes=2", "--gpus-per-node=8", "--partition=dl", seconds=600)
        world.until_state(job, "RUNNING")
        # Then it is on two of the same
        assert any(set(world.nodes(job)) <= rack for rack in racks), world.everything()
