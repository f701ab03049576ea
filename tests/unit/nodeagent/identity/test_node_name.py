"""A node name that Slurm does not have for this host is found, from slurmd's command line and slurm.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent import check
from nodeagent.config import AgentSettings
from nodeagent.identity.node_name import problem_of, read_nodes, slurmd_names
from policies.serving.runtime.finding import Level

CONF = """
ClusterName=lab  # NodeName=none
NodeName=DEFAULT CPUs=4
NodeName=n[1-3] NodeHostname=host[1-3] \\
  State=UNKNOWN
include more.conf
"""


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "slurm.conf").write_text(CONF)
    (tmp_path / "more.conf").write_text("nodename=big CPUs=8\nPartitionName=gpu Nodes=n[1-9]\n")
    return tmp_path / "slurm.conf"


def slurmd(folder: Path, pid: int, *words: str) -> None:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_nodes_and_their_hosts_are_read(conf: Path) -> None:
    nodes = read_nodes([conf.parent / "absent.conf", conf])

    assert nodes is not None
    assert nodes.hosts == {"n1": "host1", "n2": "host2", "n3": "host3", "big": "big"}


@pytest.mark.parametrize(
    ("name", "host", "problem"),
    [
        ("n1", "host1", ""),
        ("big", "big", ""),
        ("host1", "host1", "has this host, host1, as node n1, and not as host1"),
        ("n2", "host1", "has this host, host1, as node n1, and not as n2"),
        ("n4", "other", "has no node n4"),
        ("n3", "other", ""),  # a host with several names
    ],
)
def test_a_wrong_name_is_found_in_slurm_conf(conf: Path, name: str, host: str, problem: str) -> None:
    found = problem_of(name, host, (), read_nodes([conf]))

    assert found.endswith(problem)
    assert bool(found) == bool(problem)


def test_the_name_that_slurmd_was_started_with_counts_before_slurm_conf(conf: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    slurmd(proc, 1, "/usr/sbin/slurmd", "-D", "-N", "n7")
    slurmd(proc, 2, "slurmd", "-Nn8")
    slurmd(proc, 3, "slurmstepd", "-N", "n9")
    slurmd(proc, 4, "slurmd", "-D")
    (proc / "self").mkdir()

    names = sorted(slurmd_names(proc))
    assert names == ["n7", "n8"]
    assert problem_of("n8", "host1", names, read_nodes([conf])) == ""
    assert problem_of("n1", "host1", names, None) == "slurmd runs here as n7, n8, and not as n1"


def test_the_check_has_a_mend_or_says_what_it_could_not_see(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    settings = AgentSettings(controller_address="127.0.0.1:1", node_name="n4")

    wrong = check.node_name(settings, tmp_path / "proc", [conf])
    unseen = check.node_name(settings, tmp_path / "proc", [tmp_path / "absent.conf"])
    right = check.node_name(settings.model_copy(update={"node_name": "n3"}), tmp_path / "proc", [conf])

    assert (wrong.level, "node_name in agent.toml" in wrong.mend) == (Level.ERROR, True)
    assert (unseen.level, right.level) == (Level.SKIPPED, Level.OK)
