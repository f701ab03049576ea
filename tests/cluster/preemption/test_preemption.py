"""Preemption on a real Slurm: jobs save, are stopped and placed again, and continue at the step at which they stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from tests.cluster.preemption.returning import STARTS_S, STEPS, Losses, Returning, returning

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    with returning() as found:
        yield found


@pytest.fixture(scope="module")
def whole(cluster: Returning) -> Losses:
    """Losses of a job that is left alone; it trains beside the first test that needs them."""
    return cluster.begin_whole(STEPS)


def test_a_moved_job_goes_on_elsewhere_at_the_very_step_it_left(cluster: Returning, whole: Losses) -> None:
    job = cluster.begin("moved")
    cluster.until_trains("moved")
    before = cluster.nodes(job)

    cluster.headway.headway("move", job)
    cluster.until_began("moved", 2)
    assert not set(cluster.nodes(job)) & set(before), "it runs elsewhere"
    row = cluster.until_stage(job, "resumed")

    cluster.hurry("moved")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    # It stood still from the checkpoint on: no step was lost, and none was made twice
    assert [step for step, _ in cluster.losses("moved")] == list(range(STEPS))
    assert cluster.began("moved") == [0, row["step"]]
    cluster.check_losses("moved", whole())
    assert cluster.show(job)["Restarts"] == "1"
    times = [row[key] for key in ("asked_s", "saved_s", "stopped_s", "started_s", "resumed_s")]
    assert times == sorted(times)
    print("asked, saved, stopped, started, resumed:", [round(at - times[0], 2) for at in times])


@pytest.mark.slow
def test_a_preempted_job_waits_until_there_is_room(cluster: Returning, whole: Losses) -> None:
    job = cluster.begin("waits")
    cluster.until_trains("waits")
    cluster.headway.headway("preempt", job)
    cluster.until_stage(job, "started", "resumed")
    cluster.hurry("waits")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    assert [step for step, _ in cluster.losses("waits")] == list(range(STEPS))
    cluster.check_losses("waits", whole())


def test_a_resized_job_goes_on_with_another_world_size(cluster: Returning) -> None:
    job = cluster.begin("grown")
    cluster.until_trains("grown")
    cluster.headway.headway("resize", job, "--gpus", "4")
    cluster.until_began("grown", 2)
    assert sum(cluster.nodes(job).values()) == 4
    row = cluster.until_stage(job, "resumed")
    cluster.hurry("grown")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    assert cluster.began("grown") == [0, row["step"]]
    assert [step for step, _ in cluster.losses("grown")] == list(range(STEPS))


def test_a_job_that_cannot_come_back_is_left_alone(cluster: Returning) -> None:
    job = cluster.submit("#!/bin/sh\nsrun sleep 300\n", "--gpus=1", "--output=/dev/null")
    cluster.until_seen_running(job)
    for verb in ("preempt", "move"):
        done = cluster.headway.headway(verb, job, check=False)
        assert done.returncode != 0
        assert "cannot continue after a stop" in done.stderr
    assert cluster.state(job) == "RUNNING"
    cluster.cluster.run("scancel", job)


def test_a_rank_that_never_saves_is_left_to_train_on(cluster: Returning, whole: Losses) -> None:
    # Given a job of which one rank hangs
    job = cluster.begin("hangs")
    cluster.until_trains("hangs")
    node = max(cluster.nodes(job))
    rank = cluster.rank_on(node, "hangs")
    rank.send(signal.SIGSTOP)
    try:
        cluster.headway.headway("preempt", job, "--within", "3")
        row = cluster.until_stage(job, "called off")
    finally:
        rank.send(signal.SIGCONT)

    # Then it is called off, and the job trains on where it is, once the rank does
    assert row["problem"]
    cluster.hurry("hangs")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    assert (cluster.show(job)["Restarts"], cluster.began("hangs")) == ("0", [0])
    assert [step for step, _ in cluster.losses("hangs")] == list(range(STEPS))
    cluster.check_losses("hangs", whole())


def test_cancelled_while_it_saves_it_is_over(cluster: Returning) -> None:
    # Given a preemption that waits for one rank
    job = cluster.begin("cancelled")
    cluster.until_trains("cancelled")
    rank = cluster.rank_on(max(cluster.nodes(job)), "cancelled")
    rank.send(signal.SIGSTOP)
    cluster.headway.headway("preempt", job)
    cluster.until_stage(job, "asked")
    cluster.cluster.run("scancel", job)
    cluster.until_stage(job, "over", "called off")

    # Then it ends, and is not requeued
    cluster.until(lambda: is_over(cluster, job), "it ends", 60)
    time.sleep(3.0)
    assert is_over(cluster, job)
    assert cluster.began("cancelled") == [0]


def is_over(cluster: Returning, job: str) -> bool:
    record = cluster.show(job)
    return record["JobState"] == "CANCELLED" or (record["JobState"], record["Priority"]) == ("PENDING", "0")
