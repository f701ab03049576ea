"""On a real slurmctld: hundreds of jobs become startable at once while scontrol is slow, and while it does not answer at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bench.measuring.grounds import until
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.hollow.cluster import GPUS, Hollow, hollow_cluster
from tests.hollow.watch import LeaseWatch, released_twice, steps

NODES = 25
JOBS = NODES * GPUS
TIMEOUT_S = 5.0
"""More than an ordinary call takes on a busy machine: the test is about the one that hangs."""
STALE_S = 60.0


@pytest.fixture
def hollow() -> Iterator[Hollow]:
    skip_unless_possible()
    with hollow_cluster(
        unique_name(), nodes=NODES, slurm_timeout_s=TIMEOUT_S, stale_after_s=STALE_S, heartbeat_interval_s=0.5
    ) as hollow:
        yield hollow


def test_what_was_released_before_scontrol_hangs_is_kept_and_the_rest_follows(hollow: Hollow) -> None:
    journal = hollow.headway.folder / "state" / "journal.sqlite"

    def released() -> int:
        return steps(journal, "release").get("done", 0)

    def timed_out() -> int:
        return hollow.headway.log("controller").count("no answer within")

    # given a long queue before closed nodes, and a scontrol that takes its time for every call
    hollow.close_nodes()
    hollow.submit(JOBS)
    hollow.headway.start_policy("fifo-skip")
    hollow.headway.start_controller()
    until(lambda: hollow.headway.ask("status")["jobs_waiting"] == JOBS, "the queue is seen", every_s=0.1)
    with LeaseWatch(hollow.headway.runtime_dir / "lease") as lease:
        hollow.scontrol.delay(0.1)
        # when there is room for all of them
        # and scontrol hangs once the first piece of them is released
        hollow.scontrol.hang_at_second_release()
        hollow.open_nodes()
        hollow.headway.wake()
        until(lambda: hollow.scontrol.hangs, "the second release hangs", timeout_s=120.0)
        before = timed_out()  # on a busy machine, calls that do not hang may take too long, too
        until(lambda: timed_out() > before, "a call times out", every_s=0.1)
        kept = until(released, "the first piece is released")
        hollow.scontrol.answer()
        # then the rest is placed as soon as it answers again
        until(lambda: hollow.states()["RUNNING"] == JOBS, "all run", every_s=0.2)
    # and what was done before was not done again, and the lease was good all the time
    assert 0 < kept < JOBS
    assert released_twice(journal) == 0
    assert lease.longest_s < STALE_S / 2
