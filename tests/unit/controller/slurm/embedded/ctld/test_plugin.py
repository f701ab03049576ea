"""The emulated job_submit plugin: holds what Headway manages while the lease is fresh, and nothing otherwise."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.base.config import ControllerSettings
from controller.base.errors import SlurmError
from controller.base.lease import Lease, write_lease
from controller.slurm.birthmark import birthmark_of
from controller.slurm.embedded import (
    ClusterDescription,
    PartitionDescription,
    Submission,
    open_embedded,
    sbatch_request,
)
from controller.slurm.embedded.opening import pipe_writer
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import HoldFolder
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.embedded import Lab


class Managed(Lab):
    """A lab with a plugin, a lease that can be left to grow stale, and a log of wake-ups."""

    def __init__(self, **options: Any) -> None:
        self.woken: list[str] = []
        self.lease: Lease | None = None
        partitions = (PartitionDescription(name="dl"), PartitionDescription(name="cpu"))
        super().__init__(
            ClusterDescription(partitions=partitions), lease=lambda: self.lease, wake=self.woken.append, **options
        )
        self.beat()

    def beat(self) -> None:
        self.lease = Lease(
            time_s=int(self.clock.now()), stale_after_s=30, partitions=("dl",), controller_uid=0, wake_room_bytes=4096
        )


async def test_managed_jobs_are_held_and_marked() -> None:
    lab = Managed()
    key = lab.sbatch(admin_comment="billing=7")
    await lab.pass_time(10)
    job = lab.job(key)
    assert (job.phase, job.held, without_birthmark(job.admin_comment)) == (
        Phase.PENDING,
        True,
        f"billing=7 {HOLD_MARK}",
    )
    assert lab.woken == ["submit"]


async def test_a_job_that_gets_the_id_of_a_lost_one_has_another_birthmark() -> None:
    lab = Managed()
    first = birthmark_of(lab.job(lab.sbatch()).admin_comment)
    lab.slurm.crash_slurmctld(1, away_s=0.0)
    lab.sbatch()
    lab.sbatch(array=(0, 1))
    second, *tasks = [birthmark_of(lab.slurm.job(job_id).admin_comment) for job_id in ("1", "2_0", "2_1")]
    assert len({first, second, *tasks} - {""}) == 3
    assert tasks[0] == tasks[1]


async def test_every_task_of_an_array_is_held() -> None:
    lab = Managed()
    lab.sbatch(array=(0, 1, 2))
    snapshot = await lab.client.snapshot()
    assert [(job.held, job.marks) for job in snapshot.jobs] == [(True, {HOLD_MARK})] * 3


@pytest.mark.parametrize(
    "options",
    [
        {"batch": False},
        {"het_components": 2},
        {"partition": "cpu"},
        {"partition": "dl,cpu"},
        {"request": sbatch_request(ntasks=4)},
    ],
    ids=["interactive", "het", "other partition", "partly managed", "no gpus"],
)
async def test_everything_else_passes_through(options: dict[str, object]) -> None:
    lab = Managed()
    key = lab.sbatch(**options)  # type: ignore[arg-type]
    await lab.pass_time(1)
    assert (lab.phase(key), lab.job(key).admin_comment) == (Phase.RUNNING, "")
    assert "submit" not in lab.woken


async def test_a_stale_lease_holds_nothing() -> None:
    lab = Managed()
    await lab.pass_time(31)
    key = lab.sbatch()
    await lab.pass_time(1)
    assert lab.phase(key) is Phase.RUNNING
    lab.lease = None
    other = lab.sbatch()
    await lab.pass_time(1)
    assert lab.phase(other) is Phase.RUNNING
    assert "submit" not in lab.woken


async def test_users_cannot_release_what_headway_holds() -> None:
    lab = Managed()
    key = lab.sbatch()
    with pytest.raises(SlurmError, match="waits for Headway"):
        lab.slurm.user_release(key.job_id)
    assert lab.job(key).held


async def test_with_a_stale_lease_users_can_release() -> None:
    lab = Managed()
    key = lab.sbatch()
    await lab.pass_time(31)
    lab.slurm.user_release(key.job_id)
    await lab.pass_time(1)
    assert lab.phase(key) is Phase.RUNNING


async def test_a_users_own_hold_is_marked_and_its_release_leaves_headway_five_seconds() -> None:
    lab = Managed()
    key = lab.sbatch(hold=True)
    assert without_birthmark(lab.job(key).admin_comment) == USER_HOLD_MARK
    lab.slurm.user_release(key.job_id)
    assert lab.woken == ["submit", f"user-release {key.job_id}"]
    await lab.pass_time(4)
    assert (lab.phase(key), lab.reason(key)) == (Phase.PENDING, "BeginTime")
    await lab.pass_time(2)
    assert lab.phase(key) is Phase.RUNNING, "with the controller away it simply starts"


async def test_a_later_begin_time_of_the_users_own_stays() -> None:
    lab = Managed()
    key = lab.sbatch(hold=True, begin_time_s=lab.start_s + 600)
    lab.slurm.user_release(key.job_id)
    assert lab.job(key).begin_time_s == lab.start_s + 600


async def test_headway_can_hold_before_the_five_seconds_are_over() -> None:
    lab = Managed()
    key = lab.sbatch(hold=True)
    lab.slurm.user_release(key.job_id)
    assert await lab.client.hold([key]) == {}
    assert await lab.client.unmark([key], USER_HOLD_MARK) == {}
    await lab.pass_time(10)
    job = lab.job(key)
    assert (job.phase, job.held, without_birthmark(job.admin_comment)) == (Phase.PENDING, True, HOLD_MARK)


async def test_a_users_hold_of_a_job_that_headway_holds_goes_to_the_controller() -> None:
    lab = Managed()
    key = lab.sbatch()
    lab.slurm.user_hold(key.job_id)
    assert lab.woken[-1] == f"user-hold {key.job_id}"


async def test_hooks_report_starts_and_ends() -> None:
    lab = Managed()
    key = lab.sbatch(duration_s=10)
    await lab.client.release([key])
    await lab.pass_time(20)
    lab.slurm.job("1")
    assert lab.woken == ["submit", "start 1", "end 1"]


def test_an_embedded_slurm_from_settings_alone(tmp_path: Path) -> None:
    settings = ControllerSettings(partitions=("train", "eval"), slurm_client="embedded", runtime_dir=tmp_path)
    slurm = open_embedded(settings)
    lease = Lease(
        time_s=int(slurm.clock.now()), stale_after_s=30, partitions=("train",), controller_uid=0, wake_room_bytes=4096
    )
    write_lease(settings.lease_path, lease)
    held = slurm.submit(Submission(request=sbatch_request(gpus=1), duration_s=1))
    free = slurm.submit(Submission(request=sbatch_request(gpus=1), duration_s=1, partition="eval"))
    assert (slurm.job(held.job_id).held, slurm.job(free.job_id).held) == (True, False)
    write_lease(settings.lease_path, replace(lease, time_s=0))
    assert not slurm.job(slurm.submit(Submission(request=sbatch_request(gpus=1), duration_s=1)).job_id).held


def test_wake_ups_go_into_the_pipe_and_are_lost_rather_than_block(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    write = pipe_writer(path)
    write("submit")  # no pipe yet
    os.mkfifo(path)
    write("submit")  # nobody reads
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write("end 5")
        assert os.read(reader, 100) == b"end 5\n"
        flood = threading.Thread(target=lambda: [write("submit") for _ in range(20_000)])
        flood.start()
        flood.join(timeout=30)
        assert not flood.is_alive()
    finally:
        os.close(reader)


async def test_users_holds_are_written_down_and_taken_back(tmp_path: Path) -> None:
    holds = HoldFolder(tmp_path / "holds")
    holds.make()
    lab = Managed(holds=holds)
    key = lab.sbatch()
    lab.slurm.user_hold(key.job_id)
    found = holds.read()
    assert set(found) == {key.job_id}
    assert found[key.job_id].birthmark == birthmark_of(lab.job(key).admin_comment) != ""
    lab.slurm.user_release(key.job_id)
    assert holds.read() == {}
    assert lab.job(key).held, "the job still waits for Headway"
    with pytest.raises(SlurmError, match="waits for Headway"):
        lab.slurm.user_release(key.job_id)


async def test_a_hold_of_a_placed_job_is_written_down_for_a_controller_whose_clock_is_wrong(tmp_path: Path) -> None:
    holds = HoldFolder(tmp_path / "holds")
    holds.make()
    lab = Managed(holds=holds)
    placed, other = (lab.sbatch(begin_time_s=lab.start_s + 600) for _ in range(2))
    assert await lab.client.release([placed, other]) == {}
    assert await lab.client.unmark([placed], HOLD_MARK, PIN_MARK) == {}
    assert await lab.client.unmark([other], HOLD_MARK) == {}
    lab.lease = None
    lab.slurm.user_hold(placed.job_id)
    lab.slurm.user_hold(other.job_id)
    assert set(holds.read()) == {placed.job_id}


async def test_a_users_hold_that_cannot_be_written_down_is_refused(tmp_path: Path) -> None:
    lab = Managed(holds=HoldFolder(tmp_path / "holds"))
    key = lab.sbatch()
    with pytest.raises(SlurmError, match="try again"):
        lab.slurm.user_hold(key.job_id)
