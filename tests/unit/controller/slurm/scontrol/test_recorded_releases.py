"""The same jobs as Slurm 22.05, 24.11 and 26.05 print them: the parsers read one request of each, whatever the release."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from controller.slurm.configuration.topology import as_topology_conf, switches_of
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.records import without_false_bound
from controller.slurm.scontrol.parse_nodes import parse_node, parse_partition, parse_reservation
from tests.unit.controller.slurm.scontrol.recorded_texts import OF_RELEASES, jobs, lines
from tests.unit.controller.slurm.scontrol.text import CLOCK

OLDEST = "22.05.8"
LARGEST_NODE_GPUS = 8
RELEASES = sorted(OF_RELEASES)
NEWER = [release for release in RELEASES if release != OLDEST]
every_release = pytest.mark.parametrize("release", RELEASES)
DETAIL = "show-job-detail.txt"
MORE_CPUS = {"memgpu"}
"""Slurm 22.05 does not count the CPUs of --cpus-per-gpu before the job starts."""


def submitted(release: str) -> dict[str, str]:
    """Return the words of each job that the release has accepted, by its name."""
    found = [re.match(r"\d+ (.*?): sbatch (.*)", line) for line in lines(OF_RELEASES[release], "submitted.txt")]
    return {line[1]: line[2] for line in found if line is not None}


def named(release: str, name: str) -> SlurmJob:
    return jobs(OF_RELEASES[release], DETAIL)[name]


def test_three_releases_are_recorded() -> None:
    assert [release[:5] for release in RELEASES] == ["22.05", "24.11", "26.05"]


@every_release
def test_every_job_is_read_by_its_name(release: str) -> None:
    read = jobs(OF_RELEASES[release], DETAIL)
    assert {name.removesuffix("+True").removesuffix("+False") for name in read} == submitted(release).keys()
    assert {"het+True", "het+False"} <= read.keys()
    assert {job.user for job in read.values()} == {"root"}


@every_release
@pytest.mark.parametrize("file", ["show-job-after-requeue.txt", "show-job-ended.txt"])
def test_no_job_is_left_out(release: str, file: str) -> None:
    read = jobs(OF_RELEASES[release], file)
    assert read.keys() == jobs(OF_RELEASES[release], DETAIL).keys()
    if "ended" in file:
        assert {job.phase for job in read.values()} <= {Phase.ENDED, Phase.COMPLETING}
    else:
        assert (read["one"].restarts, read["one"].held) == (1, True)


@pytest.mark.parametrize("release", NEWER)
def test_what_does_not_depend_on_the_release(release: str) -> None:
    older, newer = jobs(OF_RELEASES[OLDEST], DETAIL), jobs(OF_RELEASES[release], DETAIL)
    parts = ("held", "exclusive", "features", "licenses", "dependency", "comment", "batch", "by_topology")
    for name in sorted(older):
        for part in parts:
            assert getattr(newer[name], part) == getattr(older[name], part), (name, part)


def waiting_in_both(release: str) -> list[str]:
    """Return the jobs that wait in both recordings: the request of one that runs is that of its allocation."""
    older, newer = jobs(OF_RELEASES[OLDEST], DETAIL), jobs(OF_RELEASES[release], DETAIL)
    return [name for name in sorted(older) if {older[name].phase, newer[name].phase} == {Phase.PENDING}]


@pytest.mark.parametrize(
    ("release", "name"),
    [(release, name) for release in NEWER for name in waiting_in_both(release) if name not in MORE_CPUS],
)
def test_requests_mean_the_same(release: str, name: str) -> None:
    then, now = named(OLDEST, name), named(release, name)
    shown = now.request.max_nodes
    if shown != then.request.max_nodes:
        # The newer release shows a maximum of nodes that the user has not given: one node, or as many as there are tasks.
        assert (then.request.max_nodes, shown) in {(0, 1), (0, now.request.num_tasks)}
        needs_more = (now.request.gpus_per_job or 0) > LARGEST_NODE_GPUS * shown
        assert without_false_bound(now, LARGEST_NODE_GPUS).request.max_nodes == (
            0 if needs_more and shown == 1 else shown
        )
    now = replace(now, request=replace(now.request, max_nodes=then.request.max_nodes, max_nodes_in_doubt=False))
    assert now.request == then.request


@every_release
def test_only_the_exclusive_job_is_exclusive(release: str) -> None:
    assert [name for name, job in jobs(OF_RELEASES[release], DETAIL).items() if job.exclusive] == ["exclusive"]


@every_release
def test_running_jobs_have_their_nodes_and_gpus(release: str) -> None:
    one, two = named(release, "one"), named(release, "two-nodes")
    assert (one.phase, two.phase) == (Phase.RUNNING, Phase.RUNNING)
    assert {share.node: share.gpus for share in one.allocated} == {"n1": 1}
    assert {share.node: share.gpus for share in two.allocated} == {"n1": 4, "n2": 4}


@every_release
def test_nodes(release: str) -> None:
    nodes = [parse_node(line) for line in lines(OF_RELEASES[release], "show-node.txt") if line.startswith("NodeName=")]
    assert [(node.name, node.gpus, node.available) for node in nodes] == [(f"n{at}", 8, True) for at in range(1, 5)]


@every_release
def test_partition_and_reservation(release: str) -> None:
    folder = OF_RELEASES[release]
    [partition] = [parse_partition(line) for line in lines(folder, "show-partition.txt") if line.startswith("Part")]
    assert len(partition.nodes) == 4
    [later] = [parse_reservation(line, CLOCK) for line in lines(folder, "show-reservation.txt") if line.startswith("R")]
    assert (later.name, later.nodes, later.users) == ("later", frozenset({"n4"}), frozenset({"root"}))
    assert later.draws_only_shorter is (release == "26.05.5")


@every_release
def test_squeue_in_json_has_the_same_job(release: str) -> None:
    one = named(release, "one")
    answer = json.loads((OF_RELEASES[release] / "squeue-one-job.json").read_text())
    [shown] = answer["jobs"]
    submitted_s = shown["submit_time"]
    if isinstance(submitted_s, dict):  # since 23.02
        submitted_s = submitted_s["number"]
    assert (shown["name"], shown["job_id"], shown["nodes"]) == (one.name, one.raw_id, "n1")
    assert submitted_s == one.key.submit_time_s


TOPOLOGIES = {
    "none": {},
    "tree": {"leaf0": {"n1", "n2"}, "leaf1": {"n3", "n4"}},
    "yaml-tree": {"leaf0": {"n1", "n3"}, "leaf1": {"n2", "n4"}},
    "block": {"b0": {"n1", "n2"}, "b1": {"n3", "n4"}},
    "yaml-ring": {"r0": {"n1", "n2", "n3", "n4"}},
    "yaml-torus": {"t0": {"n1", "n2", "n3", "n4"}},
}
"""Name of a recording → nodes of each switch."""
YAML = "26.05.5"
SHOWN = [
    *[(release, "tree", "tree") for release in RELEASES],
    *[(release, "none", "none") for release in RELEASES],
    (OLDEST, "yaml-tree", "none"),
    (OLDEST, "yaml-tree-over-conf", "tree"),
    ("24.11.5", "block", "block"),
    ("24.11.5", "yaml-tree-over-conf", "tree"),
    ("24.11.5", "yaml-block", "none"),
    (YAML, "block", "block"),
    (YAML, "yaml-tree", "yaml-tree"),
    (YAML, "yaml-tree-over-conf", "yaml-tree"),
    (YAML, "yaml-block", "block"),
    (YAML, "yaml-ring", "yaml-ring"),
    (YAML, "yaml-torus", "yaml-torus"),
]


@pytest.mark.parametrize(("release", "recording", "expected"), SHOWN)
def test_topologies(release: str, recording: str, expected: str) -> None:
    text = (OF_RELEASES[release] / "show-topology.txt").read_text()
    shown = dict(part.split("\n", 1) for part in text.removeprefix("== ").split("\n== "))[recording]
    leaves = {switch.name: set(switch.nodes) for switch in switches_of(shown) if switch.nodes}
    assert leaves == TOPOLOGIES[expected]
    if "tree" in expected:
        assert "SwitchName=top" in as_topology_conf(shown)
