"""The TOML file that describes an embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controller.base.clock import VirtualClock
from controller.base.errors import ConfigurationError
from controller.slurm.embedded import EmbeddedSlurm, load_cluster
from controller.slurm.embedded.description import expand_hosts
from simulator.cluster.cluster import cluster_of
from simulator.cluster.toml import cluster_toml

FULL = """
name = "lab"
licenses = { matlab = 2 }
[[nodes]]
names = "gpu[01-02]"
gpus = 4
cpus = 32
memory_mib = 128000
features = ["a100"]
[[nodes]]
names = "big1"
gpus = 16
gpu_type = "h100"
[[partitions]]
name = "train"
[[partitions]]
name = "debug"
nodes = "gpu01"
max_time_s = 600
[[limits]]
user = "bob"
gpus = 4
[delays]
requeue_s = 10
[[jobs]]
at_s = 5
duration_s = 60
gpus = 2
nodes = 2
name = "resnet"
"""


def _load(folder: Path, text: str) -> EmbeddedSlurm:
    path = folder / "cluster.toml"
    path.write_text(text)
    return EmbeddedSlurm(load_cluster(path), VirtualClock())


async def test_a_whole_description(tmp_path: Path) -> None:
    slurm = _load(tmp_path, FULL)
    snapshot = await slurm.client.snapshot()
    assert [(node.name, node.gpus, node.gpu_type) for node in snapshot.nodes] == [
        ("gpu01", 4, ""),
        ("gpu02", 4, ""),
        ("big1", 16, "h100"),
    ]
    assert snapshot.nodes[0].partitions == {"train", "debug"}
    assert [(part.name, len(part.nodes), part.max_time_s) for part in snapshot.partitions] == [
        ("train", 3, None),
        ("debug", 1, 600),
    ]
    assert (await slurm.client.facts()).cluster_name == "lab"


async def test_described_jobs_come_by_themselves(tmp_path: Path) -> None:
    slurm = _load(tmp_path, FULL)
    clock = slurm.clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(4)
    assert (await slurm.client.snapshot()).jobs == ()
    await clock.advance(2)
    (job,) = (await slurm.client.snapshot()).jobs
    assert (job.name, job.state, job.key.submit_time_s) == ("resnet", "RUNNING", int(clock.now()) - 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes = 5", "nodes"),
        ("[[nodes]]\nnames = 'n1'\ngpu = 4", "nodes.0.gpu"),
        ("[[nodes]]\nnames = 'n[1-'", "not a list of nodes"),
        ("[[nodes]]\nnames = 'n1,n1'", "named twice"),
        ("[[partitions]]\nname = 'a'\nnodes = 'n9'", "unknown nodes: n9"),
        ("[[jobs]]\nduration_s = 5\ngpus = 1\npartition = 'x'", "unknown partition 'x'"),
        ("[delays]\nlaunch_s = -1", "delays.launch_s"),
        (
            "slowdown = ['max-mim']",
            "cluster.toml: slowdown: there is no slowdown model 'max-mim'; take none, or some of",
        ),
        ("profiles = 'p.json'\nslowdown = ['max-min']", "p.json: cannot be read"),
        ("[network]\nkind = 'ring'", "cluster.toml: network.kind: 'ring' is not a kind of network; take one of flat"),
        ("[network]\nnic = 5", "cluster.toml: network.nic: is not a key here; take one of"),
        ("[[nodes]]\nnames = 'n1'\ngpus = 2\nsockets = 3", "nodes.0: Value error, sockets = 3 is more than its 2 GPUs"),
        ("[[nodes]]\nnames = 'n1'\nrack = 'a'\n[[nodes]]\nnames = 'n2'", "nodes: racks are given in two ways"),
        ("[[jobs]]\nduration_s = 5\ngpus = 1\nbatch_size = 0", "jobs.0.batch_size"),
        ("[[jobs]]\nduration_s = 5\ngpus = 1\nnodes = 2\nmax_nodes = 1", "jobs.0: Value error, max_nodes = 1 is less"),
        ("= 5", "not valid TOML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.toml") as caught:
        _load(tmp_path, text)
    assert problem in str(caught.value)


async def test_described_jobs_may_leave_open_over_how_many_nodes_they_lie(tmp_path: Path) -> None:
    text = "".join(
        f"[[jobs]]\nduration_s = 50\ngpus = {gpus}\nname = '{name}'\nmax_nodes = 3\n"
        for name, gpus in (("first", 5), ("second", 5), ("third", 6))
    )
    slurm = _load(tmp_path, f"[[nodes]]\nnames = 'n[1-2]'\n{text}")
    clock = slurm.clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(10)
    held = {job.name: [share.gpus for share in job.allocated] for job in (await slurm.client.snapshot()).jobs}
    assert held == {"first": [5], "second": [5], "third": [3, 3]}


PROFILES = {"format": 1, "models": {"tiny": {"compute_s": 1.0, "bytes": 1e9}}}
SLOW = """
slowdown = ["max-min:reference=alone"]
profiles = "profiles.json"
{cluster}
[[jobs]]
duration_s = 10
gpus = 4
nodes = 2
model = "tiny"
[[jobs]]
duration_s = 10
gpus = 4
nodes = 2
model = "tiny"
"""


async def test_profiles_lie_beside_the_file_and_headway_cluster_describes_the_network(tmp_path: Path) -> None:
    """A step of 1 s and 1 GB over NICs of 1 GB/s: alone 2 s, for two at once 3 s."""
    (tmp_path / "profiles.json").write_text(json.dumps(PROFILES))
    written = cluster_toml(cluster_of({"nodes": [{"names": "n[1-2]", "gpus": 8}], "network": {"nic_gbs": 1.0}}))
    slurm = _load(tmp_path, SLOW.format(cluster=written))
    clock = slurm.clock
    assert isinstance(clock, VirtualClock)
    await clock.advance(20)
    for job in (await slurm.client.snapshot()).jobs:
        assert job.end_time_s is not None and job.start_time_s is not None
        assert job.end_time_s - job.start_time_s == pytest.approx(0.05 + 15, abs=1e-6)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml.*embedded_cluster"):
        load_cluster(tmp_path / "nowhere.toml")


def test_host_lists() -> None:
    assert expand_hosts("") == ()
    assert expand_hosts("a,b[08-10,12],c1") == ("a", "b08", "b09", "b10", "b12", "c1")
