"""The TOML file that describes an embedded cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.clock import VirtualClock
from controller.errors import ConfigurationError
from controller.slurm.embedded import EmbeddedSlurm, load_cluster
from controller.slurm.embedded.description import expand_hosts

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
        ("[[nodes]]\nnames = 'n[1-'", "host list"),
        ("[[nodes]]\nnames = 'n1,n1'", "named twice"),
        ("[[partitions]]\nname = 'a'\nnodes = 'n9'", "unknown nodes: n9"),
        ("[[jobs]]\nduration_s = 5\ngpus = 1\npartition = 'x'", "unknown partition 'x'"),
        ("[delays]\nlaunch_s = -1", "delays.launch_s"),
        ("= 5", "not valid TOML"),
    ],
)
def test_mistakes_are_named_with_their_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.toml") as caught:
        _load(tmp_path, text)
    assert problem in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml.*embedded_cluster"):
        load_cluster(tmp_path / "nowhere.toml")


def test_host_lists() -> None:
    assert expand_hosts("") == ()
    assert expand_hosts("a,b[08-10,12],c1") == ("a", "b08", "b09", "b10", "b12", "c1")
