"""Credentials of agents on a real Slurm with its MUNGE; the controller runs as SlurmUser, as on clusters."""

from __future__ import annotations

import os
import pwd

from slurm.minicluster.cluster import MiniCluster
from slurm.testbed.installation import Installation
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.live import Live


def test_an_agent_shows_itself_to_the_controllers_user_and_to_no_other_user() -> None:
    skip_unless_possible()
    slurm, name = pwd.getpwnam("slurm"), unique_name()
    with (
        Installation.prepare(name, with_agents=True, agent_settings={"controller_uid": slurm.pw_uid}) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=2, gpus=1)) as cluster,
    ):
        # Given a controller that is not root
        headway.configure(cluster, agents_report_interval_s=1.0)
        for path in (headway.folder, headway.runtime_dir):
            os.chown(path, slurm.pw_uid, slurm.pw_gid)
        headway.wrap = ("setpriv", f"--reuid={slurm.pw_uid}", f"--regid={slurm.pw_gid}", "--init-groups", "--")
        headway.start_controller()
        live = Live(cluster, headway)

        # Then it reads what agents show, whose settings name its user
        headway.agents.start_all(cluster)
        live.until(lambda: headway.ask("status")["agents"]["connected"] == 2, "both agents are connected")

        # When one of them takes it for root
        headway.agents.stop(cluster, "n2")
        headway.agents.settings["controller_uid"] = 0
        headway.agents.configure(cluster, "n2")
        headway.agents.start(cluster, "n2")

        # Then it is refused, and both sides say what to correct
        live.until(lambda: "configure at the sender the uid" in headway.log("controller"), "the controller says why")
        live.until(lambda: "configure at the sender the uid" in headway.agents.log("n2"), "the agent says why")
        agents = headway.ask("status")["agents"]
        assert [node["name"] for node in agents["silent"]] == ["n2"]
        assert agents["refused"] > 0
        headway.stop("controller")
