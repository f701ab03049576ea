"""`headway cluster`: the managed cluster as Slurm tells of it, in a form that the simulator takes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.base.errors import ConfigurationError
from controller.cli.app import app
from controller.cli.live_cluster import live_cluster
from controller.slurm.client import SlurmFacts
from simulator.cli.app import app as headway_sim
from simulator.cluster.cluster import read_cluster
from tests.unit.controller.slurm.scontrol.text import node_line

CONF = Path("/etc/slurm/topology.conf")
SHOWN = (
    "SwitchName=leaf1 Level=0 LinkSpeed=200 Nodes=g[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=c1,g[3-4]\n"
    "SwitchName=spine Level=1 LinkSpeed=1 Nodes=c1,g[1-4] Switches=leaf[1-2]\n"
)
TREE = "SwitchName=leaf1 Nodes=g[1-2] LinkSpeed=200\nSwitchName=leaf2 Nodes=g[3-4],c1\nSwitchName=spine Switches=leaf[1-2]\n"
LINES = [
    *(node_line(f"g{number}", more=" Reason=Gres=gpu:1 Sockets=7 [root@now]") for number in (1, 2, 3, 4)),
    node_line("c1", gres="(null)"),
    node_line("x1").replace("Partitions=dl,short", "Partitions=other"),
]


def facts(**settings: str) -> SlurmFacts:
    known = {"SLURM_CONF": "/etc/slurm/slurm.conf", "TopologyPlugin": "topology/tree"}
    return SlurmFacts((25, 5, 3), "lab", "command-line", known | settings)


def files(**texts: str) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        try:
            return texts[path.name.replace(".", "_")]
        except KeyError:
            raise FileNotFoundError(path) from None

    return read


def test_managed_nodes_with_gpus_below_the_switches_that_slurm_shows() -> None:
    found = live_cluster(facts(), LINES, ["dl"], SHOWN)
    assert found.cluster.names == ("g1", "g2", "g3", "g4")
    assert (found.cluster.gpus, found.cluster.sockets, found.cluster.racks) == ((8,) * 4, (2,) * 4, (0, 0, 1, 1))
    topology = found.cluster.topology
    assert [topology.capacity[link] for link in topology.path(0, 2)] == [12.5, 25.0, 6.25, 12.5]
    assert found.notes == (
        "Cluster lab (Slurm 25.05.3), partitions dl: every node with GPUs, those that are down included; "
        "1 of their nodes without GPUs is left out.",
        "Switches are those of scontrol show topology; LinkSpeed is taken as Gb/s of a switch's link to the one above.",
        "LinkSpeed is not known of leaf2: uplink_gbs = 6.25 is assumed.",
        "Slurm reports no speeds of network cards, nor inside nodes: nic_gbs, pcie_gbs and socket_gbs (GB/s) are assumed.",
    )


def test_a_comment_in_latin_1_does_not_hide_a_topology_conf(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_bytes(b"# caf\xe9\n" + TREE.encode())

    assert live_cluster(facts(), LINES, ["dl"], topology_conf=path).cluster.racks == (0, 0, 1, 1)


def test_files_that_a_named_topology_conf_includes_count() -> None:
    read = files(
        topology_conf="include row.conf\nSwitchName=spine Switches=leaf[1-2]",
        row_conf=TREE.partition("SwitchName=sp")[0],
    )
    found = live_cluster(facts(), LINES, ["dl"], topology_conf=CONF, read=read)
    assert found.cluster.racks == (0, 0, 1, 1)


def test_without_a_topology_the_network_is_flat() -> None:
    found = live_cluster(facts(), LINES, ["dl", "other"])
    assert found.cluster.names == ("g1", "g2", "g3", "g4", "x1")
    assert found.cluster.topology.kind == "flat"
    assert (
        "scontrol show topology has no switch above these nodes: a flat network with one switch of unlimited speed is assumed."
        in found.notes
    )


def test_a_file_that_is_named_counts_instead() -> None:
    named = Path("/root/mine.conf")
    found = live_cluster(facts(), LINES, ["dl"], "", named, files(mine_conf=TREE))
    assert found.cluster.racks == (0, 0, 1, 1)
    other = live_cluster(facts(), LINES, ["dl"], SHOWN, named, files(mine_conf="SwitchName=s Nodes=c1"))
    assert other.cluster.topology.kind == "flat"
    assert any(
        note.startswith("/root/mine.conf has no switch above these nodes: a flat network") for note in other.notes
    )


def test_unlike_gpus_and_nodes_below_no_switch_are_noted() -> None:
    lines = [*LINES, node_line("h1", gres="gpu:h100:8(S:0-1)")]
    found = live_cluster(facts(), lines, ["dl"], SHOWN)
    assert found.cluster.racks == (0, 0, 1, 1, 2)
    assert "No switch is above h1; one more rack with an unlimited uplink is assumed there." in found.notes
    assert "LinkSpeed is not known of spine,leaf2: uplink_gbs = 6.25 is assumed." in found.notes
    assert found.notes[-1].startswith("GPUs differ (a100 on g[1-4]; h100 on h1), and are assumed to be equally fast")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, f"{CONF}: no such file; .*--topology-conf"),
        ("SwitchName=a Switches=b", f"{CONF}: the switch a is above b, which is not there; give it a SwitchName line"),
        ("SwitchName=a Nodes=g[", f"{CONF}: line 1: .* is not a list of nodes.*; write names as Slurm does"),
        ("include gone.conf", f"gone.conf: no such file, included by {CONF}"),
    ],
)
def test_a_topology_conf_that_cannot_be_read_is_named_with_the_remedy(text: str | None, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        live_cluster(
            facts(), LINES, ["dl"], topology_conf=CONF, read=files(**({"topology_conf": text} if text else {}))
        )
    assert "\n" not in str(caught.value)


def test_a_topology_that_is_no_tree_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^scontrol show topology: the switch a is above b"):
        live_cluster(facts(), LINES, ["dl"], "SwitchName=a Level=1 LinkSpeed=1 Switches=b")


def test_a_file_that_may_not_be_read_is_named() -> None:
    def read(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(ConfigurationError, match=f"^{CONF}: cannot be read: .*run this as a user who may"):
        live_cluster(facts(), LINES, ["dl"], topology_conf=CONF, read=read)


@pytest.mark.parametrize("lines", [[], [node_line(gres="(null)")], [node_line().replace("dl,short", "other")]])
def test_without_gpus_in_the_partitions_both_files_are_named(lines: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=r"show node: no node in dl has GPUs; .*controller\.toml.*slurm\.conf"):
        live_cluster(facts(), lines, ["dl"])


# --- the command


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with a scontrol in it that answers with the files of the folder, and controller.toml."""
    (tmp_path / "version").write_text("slurm 25.05.3\n")
    (tmp_path / "node").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "config").write_text(
        f"ClusterName = lab\nSLURM_CONF = {tmp_path}/slurm.conf\nTopologyPlugin = topology/tree\n"
    )
    (tmp_path / "topology").write_text(SHOWN)
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f"#!/bin/sh\ncd {shlex.quote(str(tmp_path))}\n"
        '[ -e away ] && { echo "Unable to contact slurm controller (connect failure)" >&2; exit 1; }\n'
        "while read -r verb what name; do\n"
        '  case "$verb $what" in "show hostnames") echo "$name" ;; "version ") cat version ;; *) cat "$what" ;; esac\n'
        "done\n"
    )
    scontrol.chmod(0o755)
    (tmp_path / "controller.toml").write_text(f'partitions = ["dl"]\nslurm_bin = "{tmp_path}"\n')
    return tmp_path


def headway(slurm: Path, *words: str):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(app, ["cluster", *words, "--config", str(slurm / "controller.toml")])


def test_what_it_prints_is_a_cluster_for_the_simulator(slurm: Path) -> None:
    ran = headway(slurm)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert headway(slurm, "--toml").stdout == ran.stdout
    mine = slurm / "mine.toml"
    mine.write_text(ran.stdout)
    expected = live_cluster(facts(), LINES, ["dl"], SHOWN)
    assert read_cluster(mine) == expected.cluster
    trace = slurm / "trace.csv"
    trace.write_text("job_id,submit_time_s,num_gpus,duration_s\na,0,32,10\nb,0,8,5\n")
    done = CliRunner().invoke(
        headway_sim, ["run", "--trace", str(trace), "--cluster", str(mine), "--policy", "fifo", "--json"]
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["finished"], found["makespan_s"]) == (2, 15.0)


def test_json_is_one_object(slurm: Path) -> None:
    ran = headway(slurm, "--json")
    assert ran.stdout.count("\n") == 1
    found = json.loads(ran.stdout)
    assert found["nodes"] == [
        {"names": "g[1-2]", "gpus": 8, "sockets": 2, "rack": "leaf1"},
        {"names": "g[3-4]", "gpus": 8, "sockets": 2, "rack": "leaf2"},
    ]
    assert found["network"]["switches"][0] == {"name": "leaf1", "below": "spine", "uplink_gbs": 25.0}
    assert len(found["notes"]) == 4


def test_a_slurm_that_is_away_is_exit_code_3(slurm: Path) -> None:
    (slurm / "away").touch()
    ran = headway(slurm)
    assert (ran.exit_code, ran.stdout) == (3, "")
    assert ran.stderr.count("\n") == 1
    assert "scontrol: Unable to contact slurm controller" in ran.stderr
    assert "is slurmctld running" in ran.stderr
    assert json.loads(headway(slurm, "--json").stdout)["exit_code"] == 3


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("topology", "SwitchName=a Switches=b\n", "scontrol show topology: the switch a is above b"),
        ("node", "No nodes in the system\n", "no node in dl has GPUs"),
        ("controller.toml", 'partitions = ["dl"]\nslurm_client = "embedded"\n', "there is no Slurm to read"),
        ("controller.toml", "partitions = 3\n", "controller.toml: partitions"),
        ("config", "", "show config: not understood"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_code_1(slurm: Path, name: str, text: str, says: str) -> None:
    (slurm / name).write_text(text)
    ran = headway(slurm)
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert says in ran.stderr


def test_two_forms_at_once_are_wrong_usage(slurm: Path) -> None:
    assert headway(slurm, "--toml", "--json").exit_code == 2
