"""The contract of SlurmClient on a real Slurm: by command line, and by pyslurm where it is there."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator

import pytest

from controller.config import ControllerSettings
from controller.slurm.select import command_line_client, open_client
from slurm.minicluster.cluster import MiniCluster
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.slurm_bench import MiniClusterBench, contract_spec
from tests.contract.slurm_contract import SlurmContract


@pytest.fixture(scope="module")
def contract_cluster() -> Iterator[MiniCluster]:
    skip_unless_possible()
    with MiniCluster(contract_spec(unique_name())) as cluster:
        yield cluster


def _settings(cluster: MiniCluster, **more: str) -> ControllerSettings:
    return ControllerSettings.model_validate(
        {"partitions": ("dl",), "slurm_conf": cluster.slurm_conf, "slurm_timeout_s": 4.0} | more
    )


class TestCommandLine(SlurmContract):
    @pytest.fixture
    async def bench(self, contract_cluster: MiniCluster, cluster_user: str) -> AsyncIterator[MiniClusterBench]:
        bench = MiniClusterBench(contract_cluster, command_line_client(_settings(contract_cluster)), cluster_user)
        yield bench
        await bench.clear()


class PySlurm(SlurmContract):
    @pytest.fixture
    async def bench(self, contract_cluster: MiniCluster, cluster_user: str) -> AsyncIterator[MiniClusterBench]:
        client = await open_client(_settings(contract_cluster, slurm_client="pyslurm"))
        bench = MiniClusterBench(contract_cluster, client, cluster_user)
        yield bench
        await bench.clear()


if importlib.util.find_spec("pyslurm") is not None:

    class TestPySlurm(PySlurm):
        pass

else:

    def test_pyslurm_keeps_the_contract() -> None:
        pytest.skip("pyslurm is not installed")
