"""Checkpoints on a real Slurm: a job that is stopped comes back on other nodes, at the step after the one that was saved."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.training import Training, training

pytestmark = pytest.mark.timeout(240)

STEPS = 120
PAUSE_S = 0.1
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=1 --time=10 --output={name}.log --job-name={name} --requeue
trap '' USR1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000)) GLOO_SOCKET_IFNAME=eth0
srun python returning_job.py {name} {steps} {pause_s}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Training]:
    with training("1gbit") as found:
        shutil.copy(Path(__file__).with_name("returning_job.py"), found.cluster.layout.work)
        yield found


def losses(cluster: Training, name: str) -> list[tuple[int, float]]:
    """Step and loss, as the job wrote them, over all its runs."""
    text = cluster.said(f"{name}.losses")
    pairs = (line.split() for line in text[: text.rfind("\n") + 1].splitlines())
    return [(int(step), float(loss)) for step, loss in pairs]


def saved_steps(cluster: Training, name: str) -> list[int]:
    """Steps of which there is a complete checkpoint."""
    found = cluster.cluster.layout.work.glob(f"checkpoints/*-{name}-*/step-*/manifest.json")
    return sorted(json.loads(path.read_text())["step"] for path in found)


def test_a_requeued_job_goes_on_elsewhere_with_the_losses_of_one_that_was_left_alone(cluster: Training) -> None:
    # Given a job that is left alone, and one that is asked to save while it trains
    jobs = {
        name: cluster.submit(SCRIPT.format(name=name, steps=STEPS, pause_s=PAUSE_S)) for name in ("whole", "broken")
    }
    cluster.until(lambda: len(losses(cluster, "broken")) >= 10, "ten steps", 90)
    before = cluster.nodes(jobs["broken"])
    cluster.cluster.run("scancel", "--signal=USR1", "--full", jobs["broken"])
    cluster.until(lambda: saved_steps(cluster, "broken"), "a checkpoint", 30)

    # When it is requeued, and one of its nodes takes no more jobs
    gone = min(before)
    cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=drain", "reason=test")
    try:
        cluster.cluster.run("scontrol", "requeue", jobs["broken"])
        cluster.until_state(jobs["broken"], "PENDING")
        cluster.cluster.run("scontrol", "update", f"jobid={jobs['broken']}", "StartTime=now")  # Slurm wants two minutes
        cluster.until(lambda: len(cluster.said("broken.began").split()) == 2, "its second run", 120)
        assert gone not in cluster.nodes(jobs["broken"])
    finally:
        cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=resume")
    for job in jobs.values():
        cluster.until_state(job, "COMPLETED", timeout_s=90)

    # Then it began anew after a step that was saved
    first, second = map(int, cluster.said("broken.began").split())
    assert (first, cluster.show(jobs["broken"])["Restarts"]) == (0, "1")
    assert 10 <= second < STEPS
    # and every step, those that it did twice too, has the loss of the job that was left alone
    whole = dict(losses(cluster, "whole"))
    assert sorted(whole) == list(range(STEPS))
    assert {step for step, _ in losses(cluster, "broken")} == set(whole)
    for step, loss in losses(cluster, "broken"):
        assert loss == pytest.approx(whole[step], abs=1e-6), step
