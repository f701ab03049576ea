"""SCHED2's k = 4 profiled placements on a real Slurm: a program runs briefly at each, and the agent sees its times while it waits.

As in the paper (section III-B), a profiling run executes the job's program for some mini-batches. Agents measure the steps, the
controller makes a profile of them, and the policy `sched2` has it in its state (table I).
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.profiles.windows import Throughput
from policies.learned.sched2.state.placements import ProfiledPlacements
from policies.placement.locality_tiers import ACROSS_RACKS, SAME_RACK, SAME_SOCKET
from slurm.demo.run import jobpython
from slurm.minicluster.cluster import MiniCluster
from slurm.processes import accepts
from slurm.testbed.installation import Installation
from tests.cluster.agents.training import Training
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.live import ANSWERS_S
from tests.returning.job import EAGER_TORCH

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NODES, GPUS, RACK = 15, 8, 5
RANKS = 6
MEGABYTES = 2
"""Gradients of a step: about 0.13 s on a link of 200 Mbit/s, whatever the number of nodes."""
PAUSE_S = 0.05
TIERS = (SAME_SOCKET, SAME_RACK, SAME_RACK, ACROSS_RACKS)
"""Tiers of the four profiled placements: one node, two and three of a rack, and six in all racks."""
WINDOW_S = 5.0
MEASURED_S = 240.0
"""Longest time for a profiling run on a busy machine: the start of six ranks, and then the windows."""
SCRIPT = """#!/bin/bash
#SBATCH --job-name=profiled --partition=dl --time=60 --output={name}.log {shape}
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun python ddp_job.py {name} {megabytes} {pause_s}
"""


class Profiled(Training):
    """The cluster, and the records of its policy."""

    def decisions(self) -> list[dict[str, dict[str, list[float]]]]:
        """Return the records of all decisions so far."""
        path = self.headway.folder / "decisions.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def curve(self) -> list[float]:
        """Return the throughput at each tier in the newest decision; empty where it is not known."""
        newest = self.decisions()[-1]["localities"] if self.decisions() else {}
        return next((curve for curve in newest.values() if not math.isnan(curve[0])), [])

    def alone(self, job: int) -> list[Throughput]:
        """Return the windows of that job without neighbours."""
        return [window for window in self.windows(job) if window.alone]

    def speed(self, job: int) -> float:
        """Return the median of its steps/s in these windows."""
        return statistics.median(window.steps_per_s for window in self.alone(job))

    def is_known(self, jobs: list[int]) -> bool:
        """Return whether the policy has the measured speeds of these jobs, which ran at the profiled placements in their order."""
        by_tier = [[self.speed(job) for job, tier in zip(jobs, TIERS, strict=False) if tier == at] for at in range(4)]
        expected, slowest = [], 1.0
        for speeds in by_tier:
            if speeds:
                slowest = min(slowest, statistics.geometric_mean(speeds) / by_tier[0][0])
            expected.append(slowest)
        return bool(curve := self.curve()) and curve == pytest.approx(expected, rel=0.1)

    def waiting_with_profile(self, jobs: list[int]) -> str:
        """Submit the program without a placement. Return the id of the job if the policy knew the speeds of those jobs when it
        decided about it; else empty, after some seconds and without the job."""
        waiting = self.begin("waits", f"--gpus={RANKS} --ntasks={RANKS}")
        self.until(lambda: any(waiting in each["waiting"] for each in self.decisions()), "the agent sees the job")
        if self.is_known(jobs):
            return waiting
        self.cluster.run("scancel", waiting)
        time.sleep(WINDOW_S)
        return ""

    def begin(self, name: str, shape: str) -> str:
        """Submit the program with that shape. Return the id of the job."""
        return self.submit(SCRIPT.format(name=name, shape=shape, megabytes=MEGABYTES, pause_s=PAUSE_S))


@contextmanager
def cluster_with(agents_on: list[str]) -> Iterator[Profiled]:
    """Boot 15 nodes of 8 GPUs in three racks, with agents on those nodes; `sched2` decides."""
    skip_unless_possible()
    name = unique_name()
    with (
        Installation.prepare(name, with_agents=True) as headway,
        MiniCluster(headway.cluster_spec(name=name, nodes=NODES, gpus=GPUS, rate="200mbit")) as cluster,
    ):
        jobpython.open_to_users(cluster)
        for path in (Path(__file__).with_name("ddp_job.py"), EAGER_TORCH):
            shutil.copy(path, cluster.files.work)
        _into_racks(cluster)
        headway.configure(cluster, policy_deadline_s=ANSWERS_S, agents_report_interval_s=1.0, agents_window_s=WINDOW_S)
        record = headway.folder / "decisions.jsonl"
        program = [sys.executable, "-m", "tests.cluster.agents.recording_policy", headway.policy_address, str(record)]
        headway.start("policy", program)
        headway.wait(lambda: accepts(headway.policy_socket), "policy")
        headway.start_controller()
        headway.agents.start_all(cluster, agents_on)
        try:
            yield Profiled(cluster, headway)
        finally:
            for process in reversed(list(headway.processes)):
                headway.stop(process)


def _into_racks(cluster: MiniCluster) -> None:
    names = list(cluster.node_names)
    racks = [names[first : first + RACK] for first in range(0, len(names), RACK)]
    lines = [f"SwitchName=leaf{at} Nodes={','.join(rack)}" for at, rack in enumerate(racks)]
    conf = cluster.slurm_conf
    (conf.parent / "topology.conf").write_text("\n".join([*lines, "SwitchName=top Switches=leaf[0-2]", ""]))
    conf.write_text(conf.read_text() + "TopologyPlugin=topology/tree\n")
    cluster.kill_slurmctld()
    cluster.start_slurmctld()


def placements() -> list[list[str]]:
    """Return the nodes of the four profiled placements of the job."""
    racks = [node // RACK for node in range(NODES)]
    return [[f"n{node + 1}" for node in nodes] for nodes in ProfiledPlacements([GPUS] * NODES, racks).of(RANKS)]


def test_a_waiting_job_has_the_times_that_were_measured_under_four_placements() -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the jobs train with PyTorch: `make setup` installs it")
    profiled = placements()
    assert [len(nodes) for nodes in profiled] == [1, 2, 3, 6]
    with cluster_with(sorted({node for nodes in profiled for node in nodes})) as cluster:
        cluster.until(lambda: "racks_known" in cluster.headway.log("controller"), "racks are known")
        # When its program runs at each of them, until its speed there is measured
        jobs: list[int] = []
        for at, nodes in enumerate(profiled):
            each, name = RANKS // len(nodes), f"profile{at}"
            shape = f"--nodes={len(nodes)} --nodelist={','.join(nodes)} --ntasks-per-node={each} --gpus-per-node={each}"
            begun_s = time.monotonic()
            jobs.append(int(cluster.begin(name, shape)))
            cluster.until(lambda: len(cluster.alone(jobs[-1])) >= 2, f"{name} is measured", MEASURED_S)
            assert all(set(window.nodes) == set(nodes) for window in cluster.alone(jobs[-1]))
            print(
                f"{len(nodes)} nodes ({', '.join(nodes)}): {cluster.speed(jobs[-1]):.2f} steps/s, median of "
                f"{len(cluster.alone(jobs[-1]))} windows, {time.monotonic() - begun_s:.0f} s after its submission"
            )
            if at + 1 < len(profiled):
                cluster.cancel_all()
        # Then a waiting job of that program has their times in the agent's state, once the controller has read the last ones
        waiting = cluster.until(lambda: cluster.waiting_with_profile(jobs), "the policy knows the speeds", MEASURED_S)
        shown = next(each["waiting"][waiting] for each in cluster.decisions() if waiting in each["waiting"])
        curve = cluster.curve()
        print(f"throughput by tier: {curve}; hours of the waiting job: {shown}")
        assert [hours / shown[0] for hours in shown] == pytest.approx([1.0 / curve[tier] for tier in TIERS], rel=1e-5)
        # and the agent starts it where packing puts it: on one node
        cluster.until_state(waiting, "RUNNING")
        assert len(cluster.nodes(waiting)) == 1
        cluster.cancel_all()
