"""The same jobs as Slurm 22.05.8 and 25.11.7 print them, recorded: both releases mean the same requests.

These records are no part of the repository: `recorded_texts` has the places where they are looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.slurm.configuration.topology import as_topology_conf
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.records import without_false_bound
from controller.slurm.scontrol.parse_nodes import parse_node, parse_partition
from tests.unit.controller.slurm.scontrol import recorded_texts
from tests.unit.controller.slurm.scontrol.recorded_texts import BESIDE, VARIABLE, beside_or_named

FOLDER = beside_or_named(os.environ)
needs_texts = pytest.mark.skipif(
    FOLDER is None, reason=f"no recorded texts: {VARIABLE} names no folder, and {BESIDE} is not beside the checkout"
)

_MORE_CPUS = {"memgpu"}
"""Slurm 22.05 does not count the CPUs of --cpus-per-gpu before the job starts."""


def lines(release: str, file: str) -> Iterator[str]:
    assert FOLDER is not None
    return recorded_texts.lines(FOLDER / release, file)


def jobs(release: str, file: str = "show-job-oneliner.txt") -> dict[str, SlurmJob]:
    assert FOLDER is not None
    return recorded_texts.jobs(FOLDER / release, file)


def test_the_folder_is_the_named_one_else_the_one_beside_the_checkout(tmp_path: Path) -> None:
    checkout, beside = tmp_path / "checkout", tmp_path / "shared" / "data" / "slurm-text"
    checkout.mkdir()
    assert beside_or_named({}, checkout) is None
    beside.mkdir(parents=True)
    found = beside_or_named({VARIABLE: ""}, checkout)
    assert found is not None and found.resolve() == beside.resolve()
    assert beside_or_named({VARIABLE: "/elsewhere"}, checkout) == Path("/elsewhere")


@needs_texts
def test_requests_mean_the_same() -> None:
    older, newer = jobs("22.05.8"), jobs("25.11")
    both = older.keys() & newer.keys()
    assert len(both) > 25
    for name in sorted(both):
        then, now = older[name], newer[name]
        for part in (
            "user",
            "phase",
            "held",
            "exclusive",
            "features",
            "licenses",
            "dependency",
            "comment",
            "batch",
            "by_topology",
        ):
            assert getattr(now, part) == getattr(then, part), (name, part)
        if name in _MORE_CPUS or now.phase is not Phase.PENDING:
            continue
        if now.held and now.request.max_nodes == 1:
            # The newer release shows a maximum of one node, which the user may not have given.
            assert then.request.max_nodes in {0, 1}, name
            now = without_false_bound(now, largest=8)
            shown = now.request.max_nodes
            assert (shown == 0) == ((now.request.gpus_per_job or 0) > 8), name
            now = replace(now, request=replace(now.request, max_nodes=then.request.max_nodes, max_nodes_in_doubt=False))
        assert now.request == then.request, name


@needs_texts
@pytest.mark.parametrize("release", ["22.05.8", "25.11"])
@pytest.mark.parametrize("file", ["show-job-after-requeue.txt", "show-job-ended.txt"])
def test_no_job_is_left_out(release: str, file: str) -> None:
    found = jobs(release, file)
    assert len(found) > 25
    if "ended" in file:
        assert {job.phase for job in found.values()} <= {Phase.ENDED, Phase.COMPLETING}


@needs_texts
@pytest.mark.parametrize("release", ["22.05.8", "25.11"])
def test_nodes_and_partitions(release: str) -> None:
    nodes = [parse_node(line) for line in lines(release, "show-node.txt") if line.startswith("NodeName=")]
    assert [(node.gpus, node.available) for node in nodes] == [(8, True)] * 4
    partitions = [line for line in lines(release, "show-partition.txt") if line.startswith("PartitionName=")]
    assert len(parse_partition(partitions[0]).nodes) == 4


@needs_texts
def test_only_new_options_are_missing_from_older_releases() -> None:
    newer = jobs("25.11")
    assert newer["expedite"].expedited
    assert newer["tres-per-task"].request.gpus_per_task == 1
    assert [name for name, job in newer.items() if job.expedited] == ["expedite"]


@needs_texts
def test_topologies() -> None:
    text = (
        "\n".join(lines("25.11", "topology-cases.txt")).replace("show topology rc 0 ", "").replace("show topology ", "")
    )
    shown = as_topology_conf(text).splitlines()
    assert shown.count("SwitchName=leaf0 LinkSpeed=0 Nodes=n[1,3]") == 2
    assert shown.count("SwitchName=leaf0 LinkSpeed=1 Nodes=n[1-2]") == 1
    assert {line for line in shown if "top" in line} == {
        "SwitchName=top LinkSpeed=0 Switches=leaf[0-1]",
        "SwitchName=top LinkSpeed=1 Switches=leaf[0-1]",
    }
