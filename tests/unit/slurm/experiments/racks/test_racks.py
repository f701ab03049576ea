"""The parts of the comparison on racks that need no cluster: arrivals, the time that a job sleeps, and the summary."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from slurm.experiments.racks.__main__ import Turn, summary
from slurm.experiments.racks.live_cluster import script
from slurm.experiments.racks.mix import NODES_OF_RACK, RACKS, UPLINK_GBYTE_S, RackJob, arrivals
from slurm.experiments.turns.racks import Ended, topology_conf


def test_arrivals_follow_from_the_seed() -> None:
    jobs = arrivals(60, 1, (6.0, 40.0), 1.0)
    assert jobs == arrivals(60, 1, (6.0, 40.0), 1.0)
    assert jobs != arrivals(60, 2, (6.0, 40.0), 1.0)
    alone_s = [job.seconds(1, 1) for job in jobs]
    assert min(alone_s) > 5.5 and max(alone_s) < 41
    assert [job.submit_s for job in jobs] == sorted(job.submit_s for job in jobs)
    assert {job.gpus for job in jobs} == {1, 2, 3, 4, 8}


def test_a_ring_over_an_uplink_is_slower() -> None:
    job = RackJob("a", "vgg-16", 8, 10, 0.0, 2)
    assert job.seconds(1, 1) == pytest.approx(5.35)
    assert job.seconds(2, 1) == pytest.approx(10 * (0.535 + 553.4e6 / 12.5e9))
    assert job.seconds(4, 2) == pytest.approx(10 * (0.535 + 1.5 * 553.4e6 / 1.25e9))


@pytest.mark.parametrize(("nodes", "racks"), [("n1", 1), ("n5 n8", 1), ("n4 n5", 2), ("n1 n5 n9 n12", 3)])
def test_the_script_sleeps_for_the_time_of_its_nodes(tmp_path: Path, nodes: str, racks: int) -> None:
    job = RackJob("a", "vgg-16", 8, 10, 0.0, 2)
    for name, text in (
        ("scontrol", f'printf "%s\\n" {nodes}'),
        ("sleep", f'echo "$1" > {tmp_path}/slept'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "given"}
    subprocess.run(["bash", "-c", script(job, "a")], cwd=tmp_path, env=environment, check=True, timeout=30)
    count = len(nodes.split())
    assert (tmp_path / "a.where").read_text().split() == [str(count), str(racks)]
    assert float((tmp_path / "slept").read_text()) == pytest.approx(job.seconds(count, racks), rel=1e-3)


def test_the_topology_has_a_switch_for_each_rack() -> None:
    lines = topology_conf(RACKS, NODES_OF_RACK, UPLINK_GBYTE_S).splitlines()
    assert lines[1] == "SwitchName=rack1 Nodes=n[5-8] LinkSpeed=10"
    assert lines[-1] == "SwitchName=top Switches=rack[0-2]"


def test_policies_are_compared_repeat_by_repeat() -> None:
    def turn(policy: str, repeat: int, jct_s: float, racks: int) -> Turn:
        return Turn(policy, repeat, (Ended("a", 2, 0.0, 1.0, jct_s, 2, racks),), 0, 0.5)

    turns = [turn("b", 0, 10.0, 1), turn("a", 0, 9.0, 2), turn("a", 1, 16.0, 1), turn("b", 1, 20.0, 1)]
    first, last = summary([each.row() for each in turns], ["a", "b"])
    assert first["avg_jct_s"]["mean"] == 12.5
    assert first["against_last"]["mean"] == pytest.approx(-0.15)
    assert (first["across_racks"], first["jobs"], first["forwarded"]) == (1, 2, 0)
    assert last["against_last"]["mean"] == 0.0
