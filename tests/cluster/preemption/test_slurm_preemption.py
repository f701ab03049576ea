"""On a real Slurm: jobs of a higher tier take the place of others, which save first where they can."""

from __future__ import annotations

import pytest

from slurm.minicluster.spec import PartitionSpec
from tests.cluster.live import USER, live
from tests.cluster.preemption.test_policy_preempts import LONG

pytestmark = pytest.mark.timeout(300)

NODES = ("n1", "n2")
PARTITIONS = tuple(PartitionSpec(name, NODES, f"PriorityTier={tier}") for name, tier in (("dl", 10), ("low", 1)))
SETTINGS = ("PreemptType=preempt/partition_prio", "PreemptMode=REQUEUE")


def test_a_job_of_a_higher_tier_gets_the_place_of_one_that_saves_and_of_one_that_cannot() -> None:
    spec = {"nodes": 2, "partitions": PARTITIONS, "extra_conf": SETTINGS}
    with live(policy="las", preemption="automatic", partitions=("dl", "low"), spec=spec) as world:
        # given a job of the low tier on each node, one of which can save and come back
        saves = world.cluster.run("sbatch", "--parsable", "-plow", "--gres=gpu:8", "-wn1", stdin=LONG, user=USER)
        saving, other = saves.stdout.strip(), world.sbatch("-plow", "--gres=gpu:8", "-wn2", "--time=9", seconds=300)
        account = world.cluster.files.work / f"long.{saving}"
        world.until(account.exists, "the job that saves runs")
        world.until_state(other, "RUNNING")
        # when a job of the higher tier needs the node of the first
        first = world.sbatch("--gres=gpu:8", "-wn1", seconds=1)
        # then that one saves, is stopped by Headway, and waits until it has its node again
        world.until_state(first, "COMPLETED", timeout_s=60)
        world.until(lambda: account.read_text().split("\n")[:3] == ["run 0", "saved", "run 1"], "its second run", 60)
        (row,) = world.headway.ask("preemptions")["preemptions"]
        assert (row["job_id"], row["cause"]) == (saving, "slurm")
        assert world.state(other) == "RUNNING"
        # and when one needs the node of the other, Slurm stops that, and it runs again as soon as there is room
        second = world.sbatch("--gres=gpu:8", "-wn2", seconds=1)
        world.until_state(second, "COMPLETED", timeout_s=60)
        assert world.show(other)["Restarts"] == "1"
        world.until_state(other, "RUNNING", timeout_s=60)
        assert len(world.headway.ask("preemptions")["preemptions"]) == 1
        events = world.headway.headway("events", "--no-follow").stdout
        assert f"Slurm stops it for job {second}: partition dl has a higher PriorityTier than low" in events
