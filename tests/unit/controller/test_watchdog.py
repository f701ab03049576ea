"""The watchdog beside an emulated Slurm: a controller dies, and nothing stays held."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from controller.clock import VirtualClock
from controller.errors import JournalError, SlurmUnavailableError
from controller.lease import Lease, write_lease
from controller.slurm.client import HOLD_MARK, USER_HOLD_MARK, JobKey, Phase, Pin, ResourceRequest
from controller.slurm.embedded import ClusterDescription, EmbeddedSlurm, Submission, sbatch_request
from controller.watchdog import Watchdog, WatchdogReport, confirm_s


class House:
    """A cluster whose controller can die, a lease file, and a watchdog."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.description = ClusterDescription()
        self.slurm = EmbeddedSlurm(self.description, self.clock, lease=lambda: self.lease)
        self.lease: Lease | None = None
        self.path = folder / "lease"
        self.originals: dict[JobKey, ResourceRequest] = {}
        self.journal_broken = False
        self.beat()

    def beat(self) -> None:
        """The controller is there."""
        self.lease = Lease(int(self.clock.now()), 30, (self.description.partitions[0].name,), 0, 4096)
        write_lease(self.path, self.lease)

    async def come_back(self, after_s: float) -> None:
        """The controller beats again, once."""
        await self.clock.sleep(after_s)
        self.beat()

    async def die(self, ago_s: float = 60) -> None:
        """The controller has been away for so long."""
        await self.clock.advance(ago_s)

    def submit(self, **more: object) -> JobKey:
        request = more.pop("request", None) or sbatch_request(gpus_per_node=2)
        return self.slurm.submit(Submission(request=request, duration_s=1000, **more))  # type: ignore[arg-type]

    def _originals(self) -> Mapping[JobKey, ResourceRequest]:
        if self.journal_broken:
            raise JournalError("journal.sqlite: cannot be read")
        return self.originals

    async def look(self, batch: int = 100) -> WatchdogReport:
        """One run of the timer."""
        watchdog = Watchdog(self.slurm.client, self.path, self._originals, self.clock, confirm_s=3, batch=batch)
        return await self.clock.run(watchdog.look())

    async def pin(self, key: JobKey, gpus_per_node: int | None, *nodes: str) -> None:
        """The controller was about to start the job there."""
        original = (await self.slurm.client.read([key]))[key].request
        assert await self.slurm.client.pin([Pin(key, nodes, gpus_per_node, original)]) == {}
        self.originals[key] = original


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_controller_that_beats_keeps_its_jobs(house: House) -> None:
    key = house.submit()

    assert await house.look() == WatchdogReport(away=False)
    assert house.slurm.job(key.job_id).held


async def test_jobs_of_a_dead_controller_run(house: House) -> None:
    keys = [house.submit() for _ in range(3)]
    await house.die()

    report = await house.look()
    await house.clock.advance(30)

    assert report == WatchdogReport(away=True, released=tuple(keys))
    assert {house.slurm.job(key.job_id).phase for key in keys} == {Phase.RUNNING}
    assert all(HOLD_MARK not in house.slurm.job(key.job_id).admin_comment for key in keys)


async def test_jobs_are_released_too_when_the_lease_is_gone(house: House) -> None:
    key = house.submit()
    house.path.unlink()

    assert (await house.look()).released == (key,)


async def test_a_users_own_hold_stays(house: House) -> None:
    own = house.submit(hold=True)
    both = house.submit()
    await house.slurm.client.mark([both], USER_HOLD_MARK)
    await house.die()

    assert await house.look() == WatchdogReport(away=True)
    assert house.slurm.job(own.job_id).held
    assert house.slurm.job(both.job_id).held


async def test_an_operators_hold_of_a_job_that_headway_never_held_stays(house: House) -> None:
    house.path.unlink()
    house.lease = None
    foreign = house.submit(never_starts=True)
    house.slurm.user_hold(foreign.job_id)

    assert (await house.look()).released == ()
    assert house.slurm.job(foreign.job_id).held


async def test_a_clock_that_jumps_ahead_is_no_dead_controller(house: House) -> None:
    # Given a healthy controller whose lease looks an hour old, because the machine's clock has just been set
    key = house.submit()
    await house.die(ago_s=3600)

    # When it beats again while the watchdog makes sure
    async with asyncio.TaskGroup() as group:
        group.create_task(house.come_back(after_s=1))
        report = await house.look()

    # Then nothing is released
    assert report == WatchdogReport(away=False)
    assert house.slurm.job(key.job_id).held


async def test_a_clock_that_jumps_back_is_no_dead_controller_and_hides_none(house: House) -> None:
    key = house.submit()
    assert house.lease is not None
    write_lease(house.path, replace(house.lease, time_s=house.lease.time_s + 7200))

    assert (await house.look()).released == (key,)


async def test_a_pinned_job_gets_its_own_request_back_first(house: House) -> None:
    key = house.submit(request=sbatch_request(gpus=12))
    await house.pin(key, 6, "n1", "n2")
    await house.die()

    await house.look()

    request = (await house.slurm.client.read([key]))[key].request
    assert (request.gpus_per_job, request.required_nodes) == (12, ())


async def test_a_pinned_job_whose_request_cannot_be_restored_still_starts(house: House) -> None:
    key = house.submit(request=sbatch_request(gpus_per_node=2))
    await house.pin(key, 2, "n1")
    await house.die()
    house.slurm.faults.refuse_next("unpin", "Invalid node name specified")

    assert (await house.look()).released == (key,)


async def test_a_job_that_lost_gpus_on_the_way_is_not_released(house: House) -> None:
    key = house.submit(request=sbatch_request(gpus_per_node=2))
    await house.pin(key, 2, "n1")
    house.originals[key] = replace(house.originals[key], gpus_per_node=8)
    await house.die()
    house.slurm.faults.refuse_next("unpin", "busy")

    assert (await house.look()).still_held == (key,)
    assert house.slurm.job(key.job_id).held


async def test_without_a_journal_jobs_are_released_as_they_are(house: House) -> None:
    key = house.submit()
    house.journal_broken = True
    await house.die()

    assert (await house.look()).released == (key,)


async def test_what_slurm_refuses_stays_for_the_next_look(house: House) -> None:
    key = house.submit()
    await house.die()
    house.slurm.faults.refuse_next("release", "Job update not available right now")

    assert (await house.look()).still_held == (key,)
    assert HOLD_MARK in house.slurm.job(key.job_id).admin_comment
    assert (await house.look()).released == (key,)


async def test_a_slurmctld_that_is_away_is_said(house: House) -> None:
    house.submit()
    await house.die()

    with house.slurm.faults.unavailable(), pytest.raises(SlurmUnavailableError):
        await house.look()


async def test_a_controller_that_comes_back_meanwhile_keeps_the_rest(house: House) -> None:
    keys = [house.submit() for _ in range(4)]
    await house.die()
    house.slurm.faults.slow("release", 10)

    async with asyncio.TaskGroup() as group:
        group.create_task(house.come_back(after_s=5))
        report = await house.look(batch=2)

    assert (report.away, report.released) == (False, tuple(keys[:2]))
    assert [house.slurm.job(key.job_id).held for key in keys] == [False, False, True, True]


@pytest.mark.parametrize(("beat_s", "wait_s"), [(0.5, 2.0), (1.0, 3.0), (20.0, 60.0)])
def test_some_beats_pass_before_a_lease_is_taken_for_stale(beat_s: float, wait_s: float) -> None:
    assert confirm_s(beat_s) == wait_s
