"""A node name that Slurm does not have for this host is found, from slurmd's command line and slurm.conf."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodeagent import check
from nodeagent.config import AgentSettings
from nodeagent.identity.node_name import Slurmd, judge, read_nodes, running_slurmds
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
    (tmp_path / "more.conf").write_text(
        "nodename=big CPUs=8\nNodeName=f[1-2] NodeHostname=far[1-2].site.org\nPartitionName=gpu Nodes=n[1-9]\n"
    )
    return tmp_path / "slurm.conf"


def slurmd(folder: Path, pid: int, *words: str, uid: int = 0) -> None:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / "status").write_text(f"Name:\tslurmd\nUid:\t{uid}\t0\t0\t0\n")
    (folder / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


def test_nodes_and_their_hosts_are_read(conf: Path) -> None:
    nodes = read_nodes([conf.parent / "absent.conf", conf])

    assert nodes is not None
    far = {"f1": "far1.site.org", "f2": "far2.site.org"}
    assert nodes.hosts == {"n1": "host1", "n2": "host2", "n3": "host3", "big": "big"} | far
    assert not nodes.dynamic


@pytest.mark.parametrize(
    ("name", "host", "problem"),
    [
        ("n1", "host1", ""),
        ("big", "big", ""),
        ("host1", "host1", "has this host, host1, as node n1, and not as host1"),
        ("n2", "host1", "has this host, host1, as node n1, and not as n2"),
        ("n4", "other", "has no node n4"),
        ("n3", "other", ""),  # a host with several names
        ("n1", "host1.site.org", ""),
        ("n2", "host1.site.org", "has this host, host1.site.org, as node n1, and not as n2"),
        ("f2", "far2", ""),
        ("f1", "far2", "has this host, far2, as node f2, and not as f1"),
    ],
)
def test_a_wrong_name_is_found_in_slurm_conf(conf: Path, name: str, host: str, problem: str) -> None:
    level, found = judge(name, host, (), read_nodes([conf]))

    assert level is (Level.ERROR if problem else Level.OK)
    assert found.endswith(problem)


def test_the_name_that_slurmd_was_started_with_counts_before_slurm_conf(conf: Path, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    slurmd(proc, 1, "/usr/sbin/slurmd", "-D", "-N", "n7")
    slurmd(proc, 2, "slurmd", "-Nn8")
    slurmd(proc, 3, "slurmstepd", "-N", "n9")
    slurmd(proc, 4, "slurmd", "-D")
    slurmd(proc, 5, "slurmd", "-Nn9", uid=1000)  # a user's program with this name, also if it is a setuid program
    (proc / "self").mkdir()

    slurmds = sorted(running_slurmds(proc), key=lambda slurmd: slurmd.name or "")
    assert slurmds == [Slurmd(None, False), Slurmd("n7", False), Slurmd("n8", False)]
    assert judge("n8", "host1", slurmds, read_nodes([conf]))[0] is Level.OK
    assert judge("n1", "host1", slurmds, None) == (Level.ERROR, "slurmd runs here as n7, n8, and not as n1")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("-DZ",), Slurmd(None, True)),
        (("-D", "-Z", "-N", "n5", "--conf", "Feature=Z"), Slurmd("n5", True)),
        (("-DNn5",), Slurmd("n5", False)),
        (("-Fgpu", "-D"), Slurmd(None, True)),
        (("-f", "/etc/Z", "-L", "-Z", "-s"), Slurmd(None, False)),
        (("-f/etc/slurm/ZFN.conf",), Slurmd(None, False)),
    ],
)
def test_options_of_slurmd(tmp_path: Path, options: tuple[str, ...], found: Slurmd) -> None:
    slurmd(tmp_path, 5, "slurmd", *options)
    assert list(running_slurmds(tmp_path)) == [found]


DYNAMIC = "MaxNodeCount=100\nNodeSet=ns Feature=gpu\nPartitionName=gpu Nodes=ns\n"


@pytest.mark.parametrize(
    ("text", "slurmds"),
    [
        (DYNAMIC, ()),
        (f"NodeName=login1 CPUs=2\n{DYNAMIC}", ()),
        ("PartitionName=gpu Nodes=ALL\n", ()),
        ("NodeName=login1 CPUs=2\n", (Slurmd(None, dynamic=True),)),
    ],
)
def test_a_node_that_slurm_conf_need_not_list_is_not_judged(conf: Path, text: str, slurmds: tuple[Slurmd, ...]) -> None:
    conf.write_text(text)
    assert judge("gpu17", "gpu17", slurmds, read_nodes([conf]))[0] is Level.SKIPPED


def test_the_check_has_a_mend_or_says_what_it_could_not_see(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    settings = AgentSettings(controller_address="127.0.0.1:1", node_name="n4")

    wrong = check.node_name(settings, tmp_path / "proc", [conf])
    unseen = check.node_name(settings, tmp_path / "proc", [tmp_path / "absent.conf"])
    right = check.node_name(settings.model_copy(update={"node_name": "n3"}), tmp_path / "proc", [conf])

    assert (wrong.level, "node_name in agent.toml" in wrong.mend) == (Level.ERROR, True)
    assert (unseen.level, right.level) == (Level.SKIPPED, Level.OK)
