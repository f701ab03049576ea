"""On a real Slurm: jobs of several reservations, and jobs whose reservation ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from controller.slurm.model.marks import USER_HOLD_MARK
from tests.birthmarks import without_birthmark
from tests.cluster.live import USER, Live, live


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(spec={"nodes": 2}) as world:
        yield world


def reserve(world: Live, name: str, node: str) -> None:
    words = (f"reservationname={name}", f"nodes={node}", f"users={USER}", "starttime=now", "duration=60")
    world.cluster.run("scontrol", "create", "reservation", *words)


def test_a_job_of_several_reservations_runs_in_one_of_them(world: Live) -> None:
    reserve(world, "a", "n1")
    reserve(world, "b", "n2")
    job = world.open_job("--gres=gpu:8", "--reservation=a,b")
    world.until_begun(job)
    world.until(lambda: "several reservations (a,b)" in world.headway.ask("why", job)["sentence"], "why says so")
    world.end(job)
    world.until_state(job, "COMPLETED")
    world.until(lambda: delete(world, "a") and delete(world, "b"), "they are no longer in use")


def delete(world: Live, name: str) -> bool:
    """Delete a reservation. Returns whether it is gone."""
    world.cluster.run("scontrol", "delete", f"reservation={name}", check=False)
    return f"ReservationName={name} " not in world.cluster.run("scontrol", "-o", "show", "reservation").stdout


def test_a_job_whose_reservation_ends_waits_for_its_user(world: Live) -> None:
    # given two jobs for one node of a reservation, and a free node outside
    reserve(world, "exam", "n1")
    first, job = (world.open_job("--gres=gpu:8", "--reservation=exam") for _ in range(2))
    world.until_begun(first)
    world.until_known(job)
    # when the reservation ends, then Slurm holds the second one, and Headway leaves it to its user
    world.cluster.run("scontrol", "update", "reservationname=exam", "endtime=now+2")
    world.until(
        lambda: without_birthmark(world.show(job).get("AdminComment", "")) == USER_HOLD_MARK, "it is its user's", 120.0
    )
    assert (world.state(job), world.show(job)["Priority"]) == ("RESV_DEL_HOLD", "0")
    # The mark is written within a cycle, and `why` tells what the last whole one found.
    world.until(
        lambda: "its reservation has ended" in world.headway.ask("why", job)["sentence"], "why tells that it has ended"
    )
    # and the user's release gives it back to Headway, although Slurm keeps that state until the job starts
    world.cluster.run("scontrol", "release", job, user=USER)
    world.until_begun(job)
    for each in (first, job):
        world.end(each)
