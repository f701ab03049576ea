"""Fixtures that boot a real Slurm. Other test folders may import them from here.

Every test in this folder is marked `cluster`; all are skipped, with the reason, where no mini-cluster can be booted.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.prerequisites import missing
from slurm.testbed.leftovers import remove_leftovers

HERE = Path(__file__).parent
TEST_S = 300
"""Limit of a test that names none: on a busy machine each of its waits may take long."""
PURPOSE = "test"
"""First word of the names of clusters."""
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{HERE}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):  # of ten thousand items: `is_relative_to` takes a second for them
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TEST_S))


def unique_name() -> str:
    """Return a name for a cluster that no other test process uses."""
    return f"{PURPOSE}-{os.getpid()}-{next(_numbers)}"


def skip_unless_possible(*, accounting: bool = False, containers: bool = False) -> None:
    """Skip the test, with the reason, where no mini-cluster (with accounting, for jobs in containers) can be booted."""
    if reasons := missing(accounting=accounting, containers=containers):
        pytest.skip("; ".join(reasons))


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> None:
    """Take down the clusters of test processes that were killed."""
    if not missing():
        remove_leftovers(PURPOSE)


@pytest.fixture(scope="session")
def minicluster() -> Iterator[MiniCluster]:
    """4 nodes x 8 GPUs at 1 Gbit/s, shared by all tests of the session, which leave it idle and intact."""
    skip_unless_possible()
    with MiniCluster(ClusterSpec(name=unique_name(), rate="1gbit")) as cluster:
        yield cluster


@pytest.fixture
def boot_minicluster() -> Iterator[Callable[..., MiniCluster]]:
    """Return a function that boots a cluster for this test only: `boot_minicluster(nodes=2, ...)` takes fields of ClusterSpec."""
    skip_unless_possible()
    with contextlib.ExitStack() as clusters:

        def boot(**fields: Any) -> MiniCluster:
            return clusters.enter_context(MiniCluster(ClusterSpec(**{"name": unique_name()} | fields)))

        yield boot


@pytest.fixture(scope="session")
def cluster_user() -> str:
    """Name of an unprivileged user who may submit jobs; the account exists on every Debian system."""
    return "daemon"
