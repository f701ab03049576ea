"""Files of the mini-cluster's hosts: slurm.conf, gres.conf, hosts, accounting; and their network."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from slurm.errors import PrerequisiteError
from slurm.minicluster.host import configuration
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import Addresses, NetworkNames, first_free, without_default_routes
from slurm.minicluster.spec import ClusterSpec, PartitionSpec

ADDRESSES = Addresses(ipaddress.IPv4Network("10.77.5.0/24"))
LAYOUT = ClusterFiles(Path("/srv/lab"))


def conf(cgroup: str = "none", **fields: Any) -> list[str]:
    return configuration.slurm_conf(ClusterSpec(**fields), LAYOUT, ADDRESSES, cgroup).splitlines()


def test_every_gpu_index_is_a_gres_type_and_sits_under_a_socket() -> None:
    lines = conf(nodes=2, gpus=4, cpus=8)
    node = next(line for line in lines if line.startswith("NodeName=n2"))
    assert "Gres=gpu:g0:1,gpu:g1:1,gpu:g2:1,gpu:g3:1" in node
    assert "NodeAddr=10.77.5.12" in node
    gres = configuration.gres_conf(ClusterSpec(gpus=4, cpus=8), LAYOUT).splitlines()
    assert gres[1] == "Name=gpu Type=g0 File=/srv/lab/dev/nvidia0 Cores=0-3"
    assert gres[4] == "Name=gpu Type=g3 File=/srv/lab/dev/nvidia3 Cores=4-7"


def test_untyped_gpus_and_no_gpus() -> None:
    assert any("Gres=gpu:8" in line for line in conf(indexed_gpu_types=False))
    lines = conf(gpus=0)
    assert not any("Gres" in line for line in lines)


def test_gpus_have_the_types_of_the_specification_and_shards() -> None:
    spec = ClusterSpec(gpus=3, cpus=8, gpu_types=("a100", "a100", "1g.10gb"), shards=6)
    lines = configuration.slurm_conf(spec, LAYOUT, ADDRESSES, "none").splitlines()
    assert "GresTypes=gpu,shard" in lines
    assert any("Gres=gpu:a100:2,gpu:1g.10gb:1,shard:6" in line for line in lines)
    gres = configuration.gres_conf(spec, LAYOUT).splitlines()
    assert gres[3:] == ["Name=gpu Type=1g.10gb File=/srv/lab/dev/nvidia2 Cores=4-7", "Name=shard Count=6"]


def test_an_extra_line_takes_the_place_of_our_own() -> None:
    lines = conf(extra_conf=("killwait=30", "Licenses=matlab:2", "NodeSet=ns1 Feature=fast"))
    assert [line for line in lines if line.lower().startswith("killwait")] == ["KillWait=30"]
    assert "Licenses=matlab:2" in lines
    assert lines[-1] == "NodeSet=ns1 Feature=fast"


def test_the_first_partition_is_the_default() -> None:
    lines = conf(nodes=2, partitions=(PartitionSpec("a"), PartitionSpec("b", nodes=("n2",), options="MaxTime=9")))
    assert lines[-2:] == [
        "PartitionName=a Nodes=n1,n2 Default=YES State=UP MaxTime=INFINITE",
        "PartitionName=b Nodes=n2 Default=NO State=UP MaxTime=9",
    ]


def test_hooks_are_named_by_their_absolute_paths(tmp_path: Path) -> None:
    hook = tmp_path / "hook.sh"
    hook.touch()
    lines = conf(job_submit_lua=hook, prolog_slurmctld=hook, epilog_slurmctld=hook, task_prolog=hook)
    assert {"JobSubmitPlugins=lua", f"PrologSlurmctld={hook}", f"EpilogSlurmctld={hook}", f"TaskProlog={hook}"} <= set(
        lines
    )


@pytest.mark.parametrize(("cgroup", "plugin"), [("none", "linuxproc"), ("v1", "cgroup"), ("v2", "cgroup")])
def test_containment_is_by_cgroup_where_there_is_one(cgroup: str, plugin: str) -> None:
    assert f"ProctrackType=proctrack/{plugin}" in conf(cgroup)
    assert ("IgnoreSystemd=yes" in configuration.cgroup_conf(cgroup)) == (cgroup == "v2")


def test_the_link_on_the_host_has_a_name_that_the_kernel_takes() -> None:
    links = {NetworkNames(name).host_link for name in ("a", "b", "x" * 31)}
    assert len(links) == 3
    assert all(len(link) <= 15 for link in links)


def test_a_subnet_is_free_and_stays_the_same_for_a_name() -> None:
    first = first_free("demo", [])
    assert first == first_free("demo", [])
    second = first_free("demo", [ipaddress.IPv4Network("10.0.0.0/16"), first])
    assert not first.overlaps(second)


def test_a_machine_with_wide_routes_has_subnets_of_other_pools() -> None:
    vpn, docker, tailscale = (ipaddress.IPv4Network(text) for text in ("10.0.0.0/8", "172.16.0.0/12", "100.64.0.0/10"))
    benchmarks = ipaddress.IPv4Network("198.18.0.0/15")
    assert first_free("demo", [vpn]).subnet_of(benchmarks)
    assert first_free("demo", [vpn, benchmarks, docker]).subnet_of(tailscale)
    with pytest.raises(
        PrerequisiteError, match=r"routes into each: 10\.0\.0\.0/8, 100\.64\.0\.0/10, 172\.16\.0\.0/12, 198"
    ):
        first_free("demo", [vpn, docker, tailscale, benchmarks, ipaddress.IPv4Network("192.168.0.0/24")])


def test_a_default_route_in_halves_is_no_obstacle() -> None:
    halves = [ipaddress.IPv4Network(text) for text in ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1")]
    assert without_default_routes([*halves, ipaddress.IPv4Network("10.0.0.0/8")]) == [
        ipaddress.IPv4Network("10.0.0.0/8")
    ]


def test_hosts_know_each_other() -> None:
    text = ADDRESSES.hosts_file(ClusterSpec(nodes=2))
    assert text.splitlines() == [
        "127.0.0.1 localhost",
        "10.77.5.1 host",
        "10.77.5.2 ctl",
        "10.77.5.11 n1",
        "10.77.5.12 n2",
    ]


def test_accounting_is_on_slurmctlds_host_and_counts_gpus() -> None:
    lines = conf(accounting=True)
    assert "AccountingStorageType=accounting_storage/slurmdbd" in lines
    assert "AccountingStorageHost=10.77.5.2" in lines
    assert "AccountingStorageTRES=gres/gpu" in lines
    assert "AccountingStorageType=accounting_storage/none" not in lines
    daemon = configuration.slurmdbd_conf(ClusterSpec(accounting=True), LAYOUT, ADDRESSES)
    assert "DbdAddr=10.77.5.2\n" in daemon
    assert "StoragePass" not in daemon


def test_without_gpus_none_are_counted() -> None:
    assert not [line for line in conf(accounting=True, gpus=0) if line.startswith("AccountingStorageTRES")]
    assert "AccountingStorageType=accounting_storage/none" in conf()
