"""A cluster with job_submit.lua beside a stand-in for the controller, for all tests of job_submit.lua."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slurm.minicluster.cluster import ClusterSpec, MiniCluster, PartitionSpec
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.stand_in import StandIn

PARTITIONS = (
    PartitionSpec("dl"),
    PartitionSpec("other"),
    PartitionSpec("lean", (), "MaxTime=INFINITE MaxCPUsPerNode=8"),
    PartitionSpec("small", ("n2",)),
    PartitionSpec("tiny", ("n1",)),
)
FEATURES = {"n1": ("fast",), "n2": ("slow",)}


@pytest.fixture(scope="package")
def stand_in() -> Iterator[StandIn]:
    skip_unless_possible()
    with StandIn() as stand_in:
        yield stand_in


@pytest.fixture(scope="package")
def shared(stand_in: StandIn) -> Iterator[MiniCluster]:
    lua = stand_in.script("job_submit.lua")
    spec = ClusterSpec(
        name=unique_name(), nodes=2, gpus=8, job_submit_lua=lua, partitions=PARTITIONS, features=FEATURES
    )
    with MiniCluster(spec) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: MiniCluster, stand_in: StandIn) -> Iterator[MiniCluster]:
    """The cluster with a controller that is there; every test leaves it empty."""
    stand_in.lines()
    stand_in.written_holds()
    stand_in.beat()
    yield shared
    shared.run("scancel", "--user=daemon")
    shared.run("scancel", "--user=root")
    shared.wait_idle()
