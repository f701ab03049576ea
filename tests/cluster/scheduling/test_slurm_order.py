"""Priorities that Headway computes for held jobs are those that a real Slurm gives the same jobs when they are not held."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.base.config import ControllerSettings
from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observer
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.priorities.weights import weights_of
from controller.slurm.select import command_line_client
from controller.state.ledger import Ledger
from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.minicluster.spec import ACCOUNT, PartitionSpec
from tests.cluster.conftest import skip_unless_possible, unique_name

SETTINGS = (
    "PriorityType=priority/multifactor",
    "PriorityWeightAge=3600",
    "PriorityWeightAssoc=50000",
    "PriorityWeightFairshare=100000",
    "PriorityWeightJobSize=2000",
    "PriorityWeightPartition=3000",
    "PriorityWeightQOS=40000",
    "PriorityWeightTRES=CPU=500,Mem=700,GRES/gpu=9000",
    "PriorityMaxAge=01:00:00",
    "AccountingStorageTRES=gres/gpu",
)
PARTITIONS = (PartitionSpec("dl", options="PriorityJobFactor=10"), PartitionSpec("hi", options="PriorityJobFactor=40"))
USER, OTHER, THIRD = "daemon", "bin", "sys"
"""One without a priority of its association, one with its own, and one with that of its account."""
SECONDS = 60.0
"""Age, at a point a second, by which a priority may differ: slurmctld computes it anew only every PriorityCalcPeriod."""


@pytest.fixture
def cluster() -> Iterator[MiniCluster]:
    skip_unless_possible(accounting=True)
    spec = ClusterSpec(name=unique_name(), nodes=2, gpus=4, accounting=True, partitions=PARTITIONS, extra_conf=SETTINGS)
    with MiniCluster(spec) as booted:
        booted.sacctmgr("add", "user", USER, f"Account={ACCOUNT}")
        booted.sacctmgr("add", "account", "other", "fairshare=3")
        booted.sacctmgr("add", "user", OTHER, "Account=other", "fairshare=7")
        booted.sacctmgr("add", "user", THIRD, "Account=other")
        booted.sacctmgr("modify", "account", "other", "set", "priority=40")
        booted.sacctmgr("modify", "user", OTHER, "set", "priority=10")
        booted.sacctmgr("add", "qos", "urgent", "priority=50")
        booted.sacctmgr("add", "qos", "low", "priority=10")
        for user in (USER, OTHER, THIRD):
            booted.sacctmgr("modify", "user", user, "set", "qos=normal,urgent,low")
        yield booted


def submit(cluster: MiniCluster, user: str, options: str) -> None:
    cluster.run("sbatch", "--output=/dev/null", "--time=30", *options.split(), "--wrap=sleep 300", user=user)


def as_held(snapshot: SlurmSnapshot) -> SlurmSnapshot:
    """Return the snapshot with its waiting jobs held by Headway."""
    jobs = [
        replace(job, held=True, admin_comment=HOLD_MARK) if job.phase is Phase.PENDING else job for job in snapshot.jobs
    ]
    return replace(snapshot, jobs=tuple(jobs))


async def test_priorities_are_those_of_slurm(cluster: MiniCluster, tmp_path: Path) -> None:
    # given jobs that wait for nodes, and differ in user, QOS, partition, size and nice value
    cluster.run("scontrol", "update", "nodename=n[1-2]", "state=drain", "reason=test")
    kinds = (
        "-p dl --gpus=1",
        "-p dl --gpus=8 -N2 --nice=500",
        "-p hi --gpus=2 --qos=low -c 3 --mem=4G",
        "--gpus=2 -n 5 --qos=urgent",
    )
    for user in (USER, OTHER, THIRD):
        for options in kinds:
            submit(cluster, user, options)
    submit(cluster, OTHER, "--array=1-3 --gpus=2")
    time.sleep(2)
    # when their priorities are computed as if Headway held them
    settings = ControllerSettings(
        partitions=("dl", "hi"), runtime_dir=tmp_path, state_dir=tmp_path, slurm_conf=cluster.slurm_conf
    )
    client = command_line_client(settings)
    facts, shares = await client.facts(), await client.shares(associations=True)
    knowledge = Knowledge()
    knowledge.set_priorities(PriorityFacts(weights_of(facts.settings), shares))
    snapshot = as_held(await client.snapshot())
    jobs = Observer(knowledge).observe(snapshot, Ledger(), frozenset({"dl", "hi"})).state.jobs
    assert jobs.slurm_priority is not None
    ours = {job: value for job, value in zip(jobs.ids, jobs.slurm_priority.tolist(), strict=True) if value == value}
    # then they are Slurm's own, but for the age since slurmctld computed them
    shown = cluster.run("squeue", "--noheader", "--array", "--states=PENDING", "--format=%i|%Q").stdout
    theirs = {job: float(value) for job, value in (line.split("|") for line in shown.splitlines())}
    assert len(theirs) == 3 * len(kinds) + 3
    assert ours == pytest.approx(theirs, abs=SECONDS)
    assert len(set(theirs.values())) > len(kinds)
