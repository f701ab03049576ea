"""On a real Slurm: an accepted hold is kept, also while the controller or the policy is away or slow, until its user ends it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from tests.birthmarks import without_birthmark
from tests.cluster.live import USER, Live, live

OTHER_USER = "bin"


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live() as world:
        yield world


@pytest.fixture(autouse=True)
def whole(world: Live) -> Iterator[None]:
    yield
    for name in [name for name in ("watchdog", "controller") if name in world.headway.processes]:
        world.headway.stop(name)
    world.headway.send("policy", signal.SIGCONT)
    world.clear()
    world.headway.start_controller()


def fill(world: Live) -> str:
    """Occupy every GPU."""
    job = world.sbatch("-N4", "--gres=gpu:8", seconds=300)
    world.until_state(job, "RUNNING")
    return job


def mark(world: Live, job: str) -> str:
    return without_birthmark(world.show(job).get("AdminComment", ""))


def is_the_users_own(world: Live, job: str) -> None:
    """Check that the job does not run, although there is room, before its user releases it."""
    world.until(lambda: mark(world, job) == "headway:user-hold", "the hold is the user's")
    world.until(lambda: not list((world.headway.runtime_dir / "holds").iterdir()), "nothing is left to do for it")
    assert world.show(job)["Reason"] == "JobHeldUser"
    probe = world.sbatch("--gres=gpu:1", seconds=1)
    world.until_state(probe, "COMPLETED")
    assert world.state(job) == "PENDING"
    world.cluster.run("scontrol", "release", job, user=USER)
    world.until_state(job, "RUNNING", "COMPLETED")


# --- wherever the job comes from


def held_at_submission(world: Live) -> tuple[str, Callable[[], object]]:
    blocker = fill(world)
    return world.sbatch("--gres=gpu:1"), lambda: world.cluster.run("scancel", blocker)


def adopted(world: Live) -> tuple[str, Callable[[], object]]:
    """Submitted while there was no lease."""
    blocker = fill(world)
    world.headway.stop("controller")
    (world.headway.runtime_dir / "lease").unlink()
    job = world.sbatch("--gres=gpu:1")
    assert world.show(job)["Priority"] != "0"
    world.headway.start_controller()
    return job, lambda: world.cluster.run("scancel", blocker)


def requeued(world: Live) -> tuple[str, Callable[[], object]]:
    job = fill(world)
    world.cluster.run("scontrol", "update", "nodename=n1", "state=drain", "reason=test")
    world.cluster.run("scontrol", "requeue", job)
    world.until(lambda: world.show(job)["JobState"] == "PENDING", "it is back in the queue")
    return job, lambda: world.cluster.run("scontrol", "update", "nodename=n1", "state=resume")


@pytest.mark.parametrize(
    "given",
    [pytest.param(held_at_submission, marks=pytest.mark.slow), adopted, pytest.param(requeued, marks=pytest.mark.slow)],
)
def test_users_hold_and_release_jobs_wherever_they_come_from(
    world: Live, given: Callable[[Live], tuple[str, Callable[[], object]]]
) -> None:
    # given a job that waits for Headway
    job, make_room = given(world)
    world.until(lambda: mark(world, job) == "headway:hold" and world.show(job)["Priority"] == "0", "Headway holds it")
    # when its user holds it, then it is the user's own
    world.cluster.run("scontrol", "hold", job, user=USER)
    world.until(lambda: mark(world, job) == "headway:user-hold", "the hold is the user's")
    make_room()
    is_the_users_own(world, job)


def test_a_hold_that_is_taken_back_at_once_is_none(world: Live) -> None:
    blocker = fill(world)
    world.headway.stop("controller", signal.SIGKILL)
    world.renew_lease()
    job = world.sbatch("--gres=gpu:1")
    world.cluster.run("scontrol", "hold", job, user=USER)
    world.cluster.run("scontrol", "release", job, user=USER)
    assert world.show(job)["Priority"] == "0"
    world.headway.start_controller()
    world.cluster.run("scancel", blocker)
    world.until_state(job, "RUNNING", "COMPLETED")
    assert world.headway.ask("why", job)["decisions"], "the policy placed it"


def test_no_other_user_can_hold_or_release_a_users_job(world: Live) -> None:
    blocker = fill(world)
    job, held = world.sbatch("--gres=gpu:1"), world.sbatch("--gres=gpu:1")
    world.cluster.run("scontrol", "hold", held, user=USER)
    world.until(lambda: mark(world, held) == "headway:user-hold", "the hold is the user's")
    world.refused("scontrol", "hold", job, user=OTHER_USER)
    world.refused("scontrol", "release", held, user=OTHER_USER)
    world.cluster.run("scancel", blocker)
    world.until_state(job, "RUNNING", "COMPLETED")
    assert world.state(held) == "PENDING"


# --- while the controller or the policy is away or slow


@pytest.mark.parametrize("how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_a_hold_between_two_controllers_is_kept(world: Live, how: signal.Signals) -> None:
    # given a job that waits
    blocker = fill(world)
    job = world.sbatch("--gres=gpu:1")
    # when the controller is away, but its lease still good, and the user holds the job
    world.headway.stop("controller", how)
    world.renew_lease()
    world.cluster.run("scontrol", "hold", job, user=USER)
    world.cluster.run("scancel", blocker)
    world.until_state(blocker, "CANCELLED")
    # then the next controller knows
    world.headway.start_controller()
    is_the_users_own(world, job)


def test_a_hold_during_a_slow_decision_is_kept(world: Live) -> None:
    world.headway.send("policy", signal.SIGSTOP)
    job = world.sbatch("--gres=gpu:1")
    time.sleep(1.5)  # the controller has begun to ask
    assert world.state(job) == "PENDING"
    world.cluster.run("scontrol", "hold", job, user=USER)
    world.headway.send("policy", signal.SIGCONT)  # it decides, for the job as it was
    is_the_users_own(world, job)


def test_holds_right_after_the_submission_are_kept(world: Live) -> None:
    """Each hold comes at another moment of a cycle; what Slurm had started by then runs, and everything else stays."""
    jobs = []
    for number in range(12):
        job = world.sbatch("--gres=gpu:1", seconds=300)
        time.sleep(0.04 * number)
        world.cluster.run("scontrol", "hold", job, user=USER)
        started = world.state(job) != "PENDING"
        jobs.append((job, started))
    probe = world.sbatch("--gres=gpu:1", seconds=1)
    world.until_state(probe, "COMPLETED")
    for job, started in jobs:
        assert started or world.state(job) == "PENDING", job


def test_a_hold_is_kept_although_the_controller_stays_away(world: Live) -> None:
    # given two jobs that wait, and a controller that is gone
    blocker = fill(world)
    kept, other = world.sbatch("--gres=gpu:1"), world.sbatch("--gres=gpu:1")
    world.headway.stop("controller", signal.SIGKILL)
    world.renew_lease()
    # when the user holds one of them, and the lease has run out
    world.cluster.run("scontrol", "hold", kept, user=USER)
    world.cluster.run("scancel", blocker)
    world.expire_lease()
    world.headway.start_watchdog()
    # then the watchdog frees the other one alone
    world.until_state(other, "RUNNING", "COMPLETED")
    world.until(lambda: mark(world, kept) == "headway:user-hold", "the hold is the user's")
    assert world.state(kept) == "PENDING"
    world.cluster.run("scontrol", "release", kept, user=USER)
    world.until_state(kept, "RUNNING", "COMPLETED")
