"""Checkpoints on a real Slurm: a stopped job runs again on other nodes, from the step after the saved one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.preemption.returning import STARTS_S, STEPS, Returning, returning

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    with returning() as found:
        yield found


def test_a_requeued_job_goes_on_elsewhere_with_the_losses_of_one_that_was_left_alone(cluster: Returning) -> None:
    # Given a job that is left alone, and one that is asked to save while it trains
    jobs = {"whole": cluster.begin("whole", pause_s=0.0), "broken": cluster.begin("broken")}
    cluster.until_trains("broken")
    before = cluster.nodes(jobs["broken"])
    cluster.cluster.run("scancel", "--signal=USR1", "--full", jobs["broken"])
    cluster.until(lambda: cluster.saved_steps("broken"), "a checkpoint")

    # When it is requeued, and one of its nodes takes no more jobs
    gone = min(before)
    cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=drain", "reason=test")
    try:
        cluster.requeue(jobs["broken"])
        cluster.until_began("broken", 2)
        assert gone not in cluster.nodes(jobs["broken"])
    finally:
        cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=resume")
    cluster.hurry("broken")
    for job in jobs.values():
        cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)

    # Then it began anew after a step that was saved
    first, second = cluster.began("broken")
    assert (first, cluster.show(jobs["broken"])["Restarts"]) == (0, "1")
    assert 10 <= second < STEPS
    # and every step, those that it did twice too, has the loss of the job that was left alone
    whole = dict(cluster.losses("whole"))
    assert sorted(whole) == list(range(STEPS))
    cluster.check_losses("broken", whole)


def test_a_job_that_comes_to_nodes_without_an_agent_goes_on_where_it_was(cluster: Returning) -> None:
    # Given a job that has saved, and no agent on any other node than its own
    job = cluster.begin("silent")
    cluster.until_trains("silent")
    before = cluster.nodes(job)
    cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
    cluster.until(lambda: cluster.saved_steps("silent"), "a checkpoint")
    others = sorted(set(cluster.cluster.node_names) - set(before))
    for node in others:
        cluster.headway.agents.stop(cluster.cluster, node)

    # When it is requeued, and its own nodes take no more jobs
    own = f"nodename={','.join(before)}"
    cluster.cluster.run("scontrol", "update", own, "state=drain", "reason=test")
    try:
        cluster.requeue(job)
        cluster.until_began("silent", 2)
        assert sorted(cluster.nodes(job)) == others
        cluster.hurry("silent")
        cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
    finally:
        cluster.cluster.run("scontrol", "update", own, "state=resume")
        for node in others:
            cluster.headway.agents.start(cluster.cluster, node)

    # Then it went on after a step that was saved
    first, second = cluster.began("silent")
    assert first == 0
    assert 10 <= second < STEPS


@pytest.mark.slow
def test_jobs_that_are_not_measured_save_and_come_back(cluster: Returning) -> None:
    # Given a job without GPUs, and one whose user wants no profile
    jobs = {
        "bare": cluster.begin("bare", "--gres=none", "--gpus-per-node=0"),
        "off": cluster.begin("off", "--comment=headway=off"),
    }
    for name, job in jobs.items():
        # When each has saved, and is requeued
        cluster.until_trains(name)
        cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
        cluster.until(lambda name=name: cluster.saved_steps(name), f"a checkpoint of {name}")
        cluster.requeue(job)
        cluster.hurry(name)
    cluster.start_now(jobs["bare"])

    # Then each continues after a step that was saved
    for name, job in jobs.items():
        cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S)
        first, second = cluster.began(name)
        assert first == 0
        assert 10 <= second < STEPS
