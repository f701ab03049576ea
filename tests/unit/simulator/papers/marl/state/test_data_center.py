"""The data centers of section VI: sizes, partitions and architectures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.errors import SettingError
from simulator.papers.marl.options import MarlOptions
from simulator.papers.marl.state.data_center import data_center


@pytest.mark.parametrize(
    ("options", "servers", "schedulers", "gpus"),
    [
        ({}, 2000, 20, 8000),
        ({"network": "vl2"}, 2000, 20, 8000),
        ({"network": "bcube"}, 1296, 18, 5184),
        ({"architecture": "dgx1"}, 2000, 20, 16000),
        ({"architecture": "two-sizes"}, 2000, 20, 12000),
        ({"architecture": "mixed"}, 2000, 20, 20 * (20 * 2 + 40 * 4 + 40 * 8)),
        ({"single": True}, 2000, 1, 8000),
        ({"schedulers": 4}, 2000, 4, 8000),
        ({"k": 4, "schedulers": 1}, 16, 1, 64),
        ({"k": 4}, 16, 4, 64),
        ({"network": "vl2", "k": 4}, 80, 4, 320),
        ({"network": "bcube", "n": 2, "k": 3}, 16, 2, 64),
        ({"network": "racks", "architecture": "g4dn"}, 12, 2, 48),
        ({"network": "racks", "n": 4, "k": 3}, 12, 3, 48),
    ],
)
def test_sizes(options: dict[str, Any], servers: int, schedulers: int, gpus: int) -> None:
    center = data_center(MarlOptions(**options))
    assert center.topology.num_nodes == servers
    assert center.schedulers == schedulers
    assert center.group_gpus.sum() == gpus == sum(center.topology.gpus)
    assert center.servers_each * schedulers == servers


@pytest.mark.parametrize(
    "options",
    [{"k": 4}, {"network": "vl2", "k": 4}, {"network": "bcube", "n": 4, "k": 2}, {"network": "racks"}],
)
def test_a_partition_is_a_whole_part_of_the_network(options: dict[str, Any]) -> None:
    center = data_center(MarlOptions(**options))
    pods = np.array(center.topology.pods)[center.group_server]
    of_scheduler = center.scheduler_of(np.arange(center.num_groups))
    for scheduler in range(center.schedulers):
        its = center.groups_of(scheduler)
        assert (of_scheduler[its] == scheduler).all()
        others = np.delete(pods, np.arange(its.start, its.stop))
        assert not set(pods[its].tolist()) & set(others.tolist())


def test_other_cores_are_those_of_the_server_without_the_group() -> None:
    center = data_center(MarlOptions(k=4, architecture="two-sizes"))
    assert center.group_gpus[:4].tolist() == [4, 2, 4, 2]
    assert center.group_cores[:2].tolist() == [16, 8]
    assert center.other_cores[:2].tolist() == [8, 16]
    mixed = data_center(MarlOptions(k=20, architecture="mixed"))
    assert sorted(mixed.topology.gpus[:100]) == [2] * 20 + [4] * 40 + [8] * 40
    assert mixed.other_cores[mixed.group_gpus == 2].min() == 0.0
    assert mixed.groups_each == 20 + 80 + 80


def test_bandwidths_are_those_of_the_paper() -> None:
    topology = data_center(MarlOptions()).topology
    assert topology.network[topology.nic(0)] == 1.25
    assert {topology.network[link] for link in topology.path(0, 10)} == {1.25, 2.5 * 10}
    assert {topology.network[link] for link in topology.path(0, 100)} == {1.25, 2.5 * 10, 5.0 * 100}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "ring"}, "network is 'ring'"),
        ({"k": 5}, "even number"),
        ({"k": 8, "schedulers": 3}, "schedulers is 3, and the data center has 8 partitions"),
        ({"schedulers": -1}, "schedulers is -1"),
        ({"single": True, "schedulers": 2}, "schedulers is 2 with single=True"),
        ({"network": "vl2", "k": 6}, "multiple of 4"),
        ({"network": "bcube", "n": 3}, "even n"),
        ({"architecture": "abacus"}, "architecture"),
        ({"threads": 0.0}, "threads is 0.0"),
        ({"most_forwards": 0}, "most_forwards is 0"),
        ({"concurrent": -1}, "concurrent is -1"),
        ({"traces": []}, "traces is empty"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        data_center(MarlOptions(**options))


def test_the_testbed_has_its_servers_links() -> None:
    center = data_center(MarlOptions(network="racks", architecture="g4dn"))
    assert center.num_groups == 12 and set(center.group_cores.tolist()) == {24.0}
    assert center.topology.inside.pcie_gbs == 15.0
    assert sorted(set(center.topology.network)) == [6.25, 6 * 6.25]


@pytest.mark.parametrize("options", [{"n": 0}, {"k": 0}])
def test_racks_without_servers_are_an_error(options: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="give at least 1 of each"):
        data_center(MarlOptions(network="racks", **options))
