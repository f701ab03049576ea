"""Checkpoints on a real Slurm: a job that is stopped comes back on other nodes, at the step after the one that was saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.returning import STARTS_S, STEPS, Returning, returning

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    with returning() as found:
        yield found


def test_a_requeued_job_goes_on_elsewhere_with_the_losses_of_one_that_was_left_alone(cluster: Returning) -> None:
    # Given a job that is left alone, and one that is asked to save while it trains
    jobs = {name: cluster.begin(name) for name in ("whole", "broken")}
    cluster.until_trains("broken")
    before = cluster.nodes(jobs["broken"])
    cluster.cluster.run("scancel", "--signal=USR1", "--full", jobs["broken"])
    cluster.until(lambda: cluster.saved_steps("broken"), "a checkpoint")

    # When it is requeued, and one of its nodes takes no more jobs
    gone = min(before)
    cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=drain", "reason=test")
    try:
        cluster.cluster.run("scontrol", "requeue", jobs["broken"])
        cluster.until_state(jobs["broken"], "PENDING")
        cluster.cluster.run("scontrol", "update", f"jobid={jobs['broken']}", "StartTime=now")  # Slurm wants two minutes
        cluster.until_began("broken", 2)
        assert gone not in cluster.nodes(jobs["broken"])
    finally:
        cluster.cluster.run("scontrol", "update", f"nodename={gone}", "state=resume")
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
