"""The contention threshold on a real Slurm: one of two jobs on one pair of nodes is moved, and both end sooner."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.agents.training import Training, training

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

RATE = "200mbit"
MEGABYTES = 8
"""Gradients of a step: 0.34 s on the network at that rate, and about 0.02 s of a core."""
STEPS = 300
"""About two minutes alone, twice that beside another job."""
STARTS_S = 180.0
ENDS_S = 400.0
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --time=30 --output={name}.log --job-name={name} --requeue
#SBATCH --open-mode=append
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun python contending_job.py {name} {steps} {megabytes}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Training]:
    settings = {
        "contention_sustained_s": 10, "preemption_min_run_s": 5, "preemption_cooldown_s": 5, "preemption_moves_per_hour": 1,
    }  # fmt: skip
    with training(RATE, **settings) as found:
        shutil.copy(Path(__file__).with_name("contending_job.py"), found.cluster.files.work)
        yield found


@dataclass
class Finished:
    """One job of a story, from its own files. Times in seconds since the Unix epoch."""

    job_id: str
    began: list[int]
    """First step of each run."""
    ended_s: list[float]
    """End of each step."""
    together_s: float
    """Time of the first step of the second job."""

    @property
    def end_s(self) -> float:
        """Seconds from the first step of the second job to the end of this one."""
        return self.ended_s[-1] - self.together_s

    @property
    def longest_s(self) -> float:
        """Longest time between two steps; it shows the cost of a move."""
        return max(later - sooner for sooner, later in zip(self.ended_s, self.ended_s[1:], strict=False))


def begin(cluster: Training, name: str) -> str:
    return cluster.submit(SCRIPT.format(name=name, steps=STEPS, megabytes=MEGABYTES))


def ended_s(cluster: Training, name: str) -> list[float]:
    text = cluster.said(f"{name}.ended")
    return [float(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def story(cluster: Training, mode: str) -> dict[str, Finished]:
    """Run one job alone, then another beside it, until both have ended."""
    cluster.headway.configure(cluster.cluster, preemption=mode)
    cluster.headway.processes["controller"].send_signal(signal.SIGHUP)
    jobs = {"first": begin(cluster, f"first-{mode}")}
    first = int(jobs["first"])
    cluster.until(lambda: len(cluster.windows(first)) >= 2, "two windows of the first job alone", STARTS_S)
    jobs["second"] = begin(cluster, f"second-{mode}")
    cluster.until(lambda: ended_s(cluster, f"second-{mode}"), "a step of the second job", STARTS_S)
    together_s = time.time()
    assert set(cluster.nodes(jobs["first"])) == set(cluster.nodes(jobs["second"])), "they share a pair of nodes"
    for job_id in jobs.values():
        cluster.until_state(job_id, "COMPLETED", timeout_s=ENDS_S)
    return {
        name: Finished(
            job_id,
            [int(word) for word in cluster.said(f"{name}-{mode}.began").split()],
            ended_s(cluster, f"{name}-{mode}"),
            together_s,
        )
        for name, job_id in jobs.items()
    }


def test_one_of_two_jobs_on_a_pair_of_nodes_is_moved_and_both_end_sooner(cluster: Training) -> None:
    # Given two jobs on the same pair of nodes, once left alone, and once with the threshold on automatic
    runs = {mode: story(cluster, mode) for mode in ("off", "automatic")}
    print_runs(runs)

    # Then one of them was moved, once, without losing or repeating a step
    assert [len(job.began) for job in runs["off"].values()] == [1, 1]
    assert sorted(len(job.began) for job in runs["automatic"].values()) == [1, 2]
    assert all(len(job.ended_s) == STEPS for run in runs.values() for job in run.values())
    rows = cluster.headway.ask("preemptions")["preemptions"]
    (row,) = rows
    moved = next(job for job in runs["automatic"].values() if len(job.began) == 2)
    assert (row["job_id"], row["cause"], row["stage"], row["step"]) == (
        moved.job_id, "threshold", "resumed", moved.began[1],
    )  # fmt: skip
    assert "times slower than alone" in row["why"]
    # and both ended sooner
    for name, job in runs["automatic"].items():
        assert job.end_s < runs["off"][name].end_s, name


def print_runs(runs: dict[str, dict[str, Finished]]) -> None:
    """Print the two runs side by side."""
    print(f"\n{STEPS} steps of {MEGABYTES} MiB at {RATE}; seconds from when there were two")
    print(f"{'job':8}{'threshold':12}{'end':>8}{'runs':>6}{'longest step':>14}{'step, median':>14}")
    for name in ("first", "second"):
        for mode, run in runs.items():
            job = run[name]
            steps = sorted(later - sooner for sooner, later in zip(job.ended_s, job.ended_s[1:], strict=False))
            print(
                f"{name:8}{mode:12}{job.end_s:8.1f}{len(job.began):6}{job.longest_s:14.2f}{steps[len(steps) // 2]:14.3f}"
            )
