"""The watchdog beside an emulated Slurm: a controller dies, and nothing stays held."""

import asyncio
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, Protocol

import pytest

from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.errors import JournalError, SlurmReplyError, SlurmUnavailableError, TurnLostError
from controller.base.lease import Lease, write_lease
from controller.base.turn import controller_turn, watchdog_turn
from controller.base.watchdog_mark import last_check_s
from controller.daemon.watchdog import watchdog as watchdog_module
from controller.daemon.watchdog.run import check_once, confirm_s, run_watchdog
from controller.daemon.watchdog.standing_by import HOSTS_FILE, stands_by
from controller.daemon.watchdog.watchdog import Watchdog, WatchdogReport
from controller.slurm.client import Failures, Pin
from controller.slurm.embedded import ClusterDescription, EmbeddedSlurm, Submission, sbatch_request
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.user_holds import Hold, HoldFolder
from tests.birthmarks import without_birthmark


class House:
    """A cluster whose controller can die, a lease file, and a watchdog."""

    def __init__(self, folder: Path) -> None:
        self.clock = VirtualClock()
        self.description = ClusterDescription()
        self.holds = HoldFolder(folder / "holds")
        self.holds.make()
        self.slurm = EmbeddedSlurm(self.description, self.clock, lease=lambda: self.lease, holds=self.holds)
        self.lease: Lease | None = None
        self.path = folder / "lease"
        self.originals: dict[JobKey, ResourceRequest] = {}
        self.journal_raises: BaseException | None = None
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
        if self.journal_raises is not None:
            raise self.journal_raises
        return self.originals

    async def look(self, batch: int = 100) -> WatchdogReport:
        """One run of the timer."""
        return await self.clock.run(self.watchdog(batch).check())

    def watchdog(self, batch: int = 100) -> Watchdog:
        turn = watchdog_turn(self.path.parent, 10.0, self.clock)
        return Watchdog(
            self.slurm.client, self.path, self._originals, self.clock, 3.0, turn, batch=batch, holds=self.holds
        )

    async def pin(self, key: JobKey, gpus_per_node: int | None, *nodes: str) -> None:
        """The controller was about to start the job there."""
        original = (await self.slurm.client.read([key]))[key].request
        assert await self.slurm.client.pin([Pin(key, nodes, gpus_per_node, original)]) == {}
        self.originals[key] = original


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_controller_with_a_fresh_lease_keeps_its_jobs(house: House) -> None:
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


async def test_a_job_whose_reservation_has_ended_is_left_to_its_user(house: House) -> None:
    house.slurm.reserve("exam", ("n1",), house.clock.now() - 10, house.clock.now() + 3600)
    key = house.submit(reservation="exam")
    await house.die()
    house.slurm.expire_reservation("exam")
    assert (await house.look()).released == ()
    job = house.slurm.job(key.job_id)
    assert (job.phase, job.held, without_birthmark(job.admin_comment)) == (Phase.PENDING, True, USER_HOLD_MARK)
    house.slurm.user_release(key.job_id)
    await house.clock.advance(30)
    assert house.slurm.job(key.job_id).phase is Phase.RUNNING


async def test_a_job_that_leads_to_an_error_keeps_no_other_held(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = house.submit(), house.submit()
    test = watchdog_module.is_held_by_headway

    def broken(job: SlurmJob) -> bool:
        if job.key == bad:
            raise ArithmeticError("a number that is none")
        return test(job)

    monkeypatch.setattr(watchdog_module, "is_held_by_headway", broken)
    await house.die()
    report = await house.look()
    assert report.released == (good,)
    assert not report.complete, "the exit status says that a job was left out"


async def test_jobs_are_released_too_without_a_lease(house: House) -> None:
    key = house.submit()
    house.path.unlink()

    assert (await house.look()).released == (key,)


async def test_a_run_of_the_watchdog_that_is_killed_after_a_release_leaves_no_mark(house: House) -> None:
    blocker = house.submit(request=sbatch_request(gpus_per_node=8, nodes=4))
    await house.slurm.client.release([blocker])
    await house.clock.advance(5)
    key = house.submit()
    await house.slurm.client.release([key])
    await house.die()

    assert await house.look() == WatchdogReport(away=True)
    job = house.slurm.job(key.job_id)
    assert (job.phase, job.held, HOLD_MARK in job.admin_comment) == (Phase.PENDING, False, False)
    # so that a hold which its user puts on now is not taken for ours
    house.slurm.user_hold(key.job_id)
    assert (await house.look()).released == ()


async def test_a_released_job_that_is_bound_to_nodes_keeps_the_mark_of_placed_ones(house: House) -> None:
    """Slurm may yet find it impossible there: the mark is how the next look finds it then."""
    key = house.submit(never_starts=True)
    await house.pin(key, None, "n1")
    await house.slurm.client.release([key])
    await house.die()

    assert await house.look() == WatchdogReport(away=True)
    assert without_birthmark(house.slurm.job(key.job_id).admin_comment) == PIN_MARK


async def test_a_users_own_hold_stays(house: House) -> None:
    own = house.submit(hold=True)
    both = house.submit()
    await house.slurm.client.mark([both], USER_HOLD_MARK)
    await house.die()

    assert await house.look() == WatchdogReport(away=True)
    assert house.slurm.job(own.job_id).held
    assert house.slurm.job(both.job_id).held


@pytest.mark.parametrize("dead", [False, True])
async def test_a_users_hold_that_the_controller_has_not_handled_becomes_the_users_own(house: House, dead: bool) -> None:
    key, other = house.submit(), house.submit()
    await house.pin(key, 2, "n3")
    if dead:
        await house.die()
    house.slurm.user_hold(key.job_id)
    await house.die()

    assert await house.look() == WatchdogReport(away=True, released=(other,))
    job = house.slurm.job(key.job_id)
    assert (job.held, without_birthmark(job.admin_comment), job.request.required_nodes) == (True, USER_HOLD_MARK, ())
    house.slurm.user_release(key.job_id)
    await house.clock.advance(30)
    assert house.slurm.job(key.job_id).phase is Phase.RUNNING


@pytest.mark.parametrize("after", [False, True])
async def test_a_hold_that_comes_while_the_watchdog_releases_is_kept(house: House, after: bool) -> None:
    key = house.submit()
    await house.die()
    real = house.slurm.client.release

    async def release(keys: Sequence[JobKey]) -> Failures:
        if not after:
            house.slurm.user_hold(key.job_id)
        failures = await real(keys)
        if after:
            house.slurm.user_hold(key.job_id)
        return failures

    house.slurm.client.release = release  # type: ignore[method-assign]
    assert (await house.look()).released == ()
    await house.clock.advance(30)
    job = house.slurm.job(key.job_id)
    assert (job.phase, job.held) == (Phase.PENDING, True)
    house.slurm.user_release(key.job_id)
    await house.clock.advance(30)
    assert house.slurm.job(key.job_id).phase is Phase.RUNNING


async def test_a_hold_that_comes_while_another_one_is_seen_to_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = house.submit(), house.submit(), house.submit()
    house.slurm.user_hold(first.job_id)
    await house.die()
    real, released = house.slurm.client.mark, house.slurm.client.release
    names: list[JobKey] = []

    async def mark(keys: Sequence[JobKey], mark: str) -> Failures:
        if first in keys:
            house.slurm.user_hold(second.job_id)
        return await real(keys, mark)

    async def release(keys: Sequence[JobKey]) -> Failures:
        names.extend(keys)
        return await released(keys)

    monkeypatch.setattr(house.slurm.client, "mark", mark)
    monkeypatch.setattr(house.slurm.client, "release", release)
    assert (await house.look()).released == (third,)
    assert names == [third]


@pytest.mark.parametrize("answered", [True, False])
async def test_a_hold_that_a_controller_handed_over_while_the_watchdog_released_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    """The order to release is carried out late, when the next controller has handed the job over and removed the file."""
    key, other = house.submit(), house.submit()
    await house.die()
    client, release = house.slurm.client, house.slurm.client.release

    async def late(keys: Sequence[JobKey]) -> Failures:
        house.beat()
        house.slurm.user_hold(key.job_id)
        await client.mark([key], USER_HOLD_MARK)
        await client.unmark([key], HOLD_MARK)
        house.holds.remove([key.job_id])
        failures = await release(keys)
        if not answered:
            raise SlurmUnavailableError("no answer in time")
        return failures

    monkeypatch.setattr(client, "release", late)
    await house.look()
    monkeypatch.undo()
    await house.clock.advance(30)

    job = house.slurm.job(key.job_id)
    assert (job.held, without_birthmark(job.admin_comment)) == (True, USER_HOLD_MARK)
    assert house.slurm.job(other.job_id).phase is Phase.RUNNING
    house.slurm.user_release(key.job_id)  # it is its user's own


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SlurmReplyError("not understood")], ids=["ended", "error"])
@pytest.mark.parametrize("others", [0, 1])
async def test_a_hold_that_came_during_a_release_that_ended_early_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch, error: BaseException, others: int
) -> None:
    """Slurm does not show this hold: the release has ended it, and only its file is left."""
    # given a job whose user holds it just before it is released, and a watchdog that ends before it looks at the holds again
    key = house.submit(never_starts=True)
    for _ in range(others):
        house.submit(never_starts=True)
    await house.die()
    good = house.slurm.client.release

    async def release(keys: Sequence[JobKey]) -> NoReturn:
        house.slurm.user_hold(key.job_id)
        await good(keys)
        raise error

    monkeypatch.setattr(house.slurm.client, "release", release)
    with suppress(asyncio.CancelledError):
        await house.look()
    monkeypatch.undo()

    # when the timer starts it again
    report = await house.look()

    # then the job is held, and it is its user's
    job = house.slurm.job(key.job_id)
    assert key not in report.released
    assert (job.held, without_birthmark(job.admin_comment)) == (True, USER_HOLD_MARK)
    house.slurm.user_release(key.job_id)


async def test_a_job_that_became_its_users_own_while_slurm_did_not_answer_stays_held(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a watchdog whose release is not answered for a while
    key, other = house.submit(), house.submit()
    await house.die()
    good = house.slurm.client.release

    async def release(keys: Sequence[JobKey]) -> Failures:
        if len(keys) < 2:
            return await good(keys)
        # when meanwhile a controller comes, notes the user's hold in the job, and dies
        house.slurm.user_hold(key.job_id)
        await house.slurm.client.mark([key], USER_HOLD_MARK)
        await house.slurm.client.unmark([key], HOLD_MARK)
        house.holds.remove([key.job_id])
        await house.clock.sleep(7)
        raise SlurmUnavailableError("slurmctld does not answer")

    monkeypatch.setattr(house.slurm.client, "release", release)
    report = await house.look()

    # then the watchdog does not release the job by what it read before
    assert report.released == (other,)
    assert house.slurm.job(key.job_id).held


async def test_a_job_that_the_watchdog_handed_over_before_an_error_stays_held(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a watchdog that has handed a job over to its user, and whose release of the others then fails
    key, other, third = (house.submit() for _ in range(3))
    await house.die()
    house.holds.write(key.job_id, Hold(house.clock.now()))
    good = house.slurm.client.release

    async def release(keys: Sequence[JobKey]) -> Failures:
        if len(keys) < 2:
            return await good(keys)
        # when meanwhile a controller comes, finds the job in its user's hands, removes the file, and dies
        house.holds.remove([key.job_id])
        raise SlurmUnavailableError("slurmctld does not answer")

    monkeypatch.setattr(house.slurm.client, "release", release)
    report = await house.look()

    # then the watchdog tries the others again, and not that job
    assert set(report.released) == {other, third}
    assert house.slurm.job(key.job_id).held


@pytest.mark.parametrize(
    ("complete", "file", "theirs"),
    [(True, False, False), (True, True, True), (False, False, True), (False, True, True)],
)
async def test_an_unfinished_hold_of_a_dead_controller_is_completed(
    house: House, complete: bool, file: bool, theirs: bool
) -> None:
    key = house.submit()
    await house.slurm.client.mark([key], USER_HOLD_MARK)
    if complete:
        house.holds.completed()
    if file:
        house.holds.write(key.job_id, Hold(house.clock.now()))
    await house.die()

    await house.look()
    await house.clock.advance(30)

    record = house.slurm.job(key.job_id)
    assert (record.phase, USER_HOLD_MARK in record.admin_comment) == (
        (Phase.PENDING, True) if theirs else (Phase.RUNNING, False)
    )
    assert (HOLD_MARK in record.admin_comment) == (theirs and not file)


async def test_the_watchdog_ignores_a_hold_that_was_taken_back(house: House) -> None:
    key = house.submit()
    house.slurm.user_hold(key.job_id)
    house.slurm.user_release(key.job_id)
    await house.die()

    assert (await house.look()).released == (key,)


async def test_an_operators_hold_of_a_job_that_headway_never_held_stays(house: House) -> None:
    house.path.unlink()
    house.lease = None
    foreign = house.submit(never_starts=True)
    house.slurm.user_hold(foreign.job_id)

    assert (await house.look()).released == ()
    assert house.slurm.job(foreign.job_id).held


async def test_a_clock_that_jumps_ahead_does_not_make_a_controller_dead(house: House) -> None:
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


async def test_a_clock_that_jumps_back_neither_makes_nor_hides_a_dead_controller(house: House) -> None:
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


async def test_a_job_whose_request_has_fewer_gpus_is_not_released(house: House) -> None:
    key = house.submit(request=sbatch_request(gpus_per_node=2))
    await house.pin(key, 2, "n1")
    house.originals[key] = replace(house.originals[key], gpus_per_node=8)
    await house.die()
    house.slurm.faults.refuse_next("unpin", "busy")

    assert (await house.look()).still_held == (key,)
    assert house.slurm.job(key.job_id).held


@pytest.mark.parametrize(
    "problem",
    [
        JournalError("journal.sqlite: cannot be read"), TypeError("unexpected field"), MemoryError(), RecursionError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), IsADirectoryError("journal.sqlite"), SystemExit(3),
    ],
    ids=lambda problem: type(problem).__name__,
)  # fmt: skip
async def test_without_a_journal_jobs_are_released_as_they_are(house: House, problem: BaseException) -> None:
    key = house.submit()
    house.journal_raises = problem
    await house.die()

    assert (await house.look()).released == (key,)


async def test_the_watchdog_works_without_a_journal_that_does_not_answer(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = house.submit()
    monkeypatch.setattr("controller.daemon.watchdog.watchdog._JOURNAL_S", 0.05)
    answer = threading.Event()

    def originals() -> Mapping[JobKey, ResourceRequest]:
        answer.wait()
        return {}

    await house.die()
    turn = watchdog_turn(house.path.parent, 10.0, house.clock)
    watchdog = Watchdog(house.slurm.client, house.path, originals, house.clock, 3.0, turn)

    assert (await house.clock.run(watchdog.check())).released == (key,)
    answer.set()


class Moody(Protocol):
    """A verb of a SlurmClient."""

    async def __call__(self, keys: Sequence[JobKey], *more: str, **options: bool) -> Failures: ...


@pytest.mark.parametrize(
    "error", [SlurmReplyError("what?"), ValueError("not a job id"), SlurmUnavailableError("too slow")]
)
@pytest.mark.parametrize("verb", ["release", "unmark"])
async def test_a_job_that_cannot_be_released_keeps_no_other_held(
    house: House, monkeypatch: pytest.MonkeyPatch, verb: str, error: Exception
) -> None:
    # given one job of many over which every call fails
    keys = [house.submit() for _ in range(12)]
    bad, client = keys[3], house.slurm.client
    good: Moody = getattr(client, verb)

    async def moody(of: Sequence[JobKey], *more: str, **options: bool) -> Failures:
        if bad in of:
            raise error
        return await good(of, *more, **options)

    monkeypatch.setattr(client, verb, moody)
    await house.die()

    # when the watchdog looks
    report = await house.look(batch=10)

    # then all others are released, in their order
    assert report.released == tuple(key for key in keys if key != bad)
    assert [house.slurm.job(key.job_id).held for key in keys] == [key == bad and verb == "release" for key in keys]


async def test_a_slurmctld_that_stops_answering_ends_the_check(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [house.submit() for _ in range(40)]
    calls: list[int] = []

    async def away(of: Sequence[JobKey]) -> Failures:
        calls.append(len(of))
        raise SlurmUnavailableError("slurmctld does not answer")

    monkeypatch.setattr(house.slurm.client, "release", away)
    await house.die()

    with pytest.raises(SlurmUnavailableError):
        await house.look(batch=len(keys))
    assert calls == [40, 10, 3, 1, 1, 1]


async def test_a_job_without_a_known_request_is_released(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    key = house.submit(request=sbatch_request(gpus_per_node=2))
    await house.pin(key, 2, "n1")

    async def unpin(of: Mapping[JobKey, ResourceRequest]) -> Failures:
        raise SlurmReplyError("what?")

    monkeypatch.setattr(house.slurm.client, "unpin", unpin)
    await house.die()

    assert (await house.look()).released == (key,)


async def test_what_slurm_refuses_is_tried_in_the_next_run(house: House) -> None:
    key = house.submit()
    await house.die()
    house.slurm.faults.refuse_next("release", "Job update not available right now")

    assert (await house.look()).still_held == (key,)
    assert HOLD_MARK in house.slurm.job(key.job_id).admin_comment
    assert (await house.look()).released == (key,)


async def test_a_slurmctld_that_is_away_is_reported(house: House) -> None:
    house.submit()
    await house.die()

    with house.slurm.faults.unavailable(), pytest.raises(SlurmUnavailableError):
        await house.look()


async def test_a_controller_that_is_back_keeps_the_remaining_jobs(house: House) -> None:
    keys = [house.submit() for _ in range(4)]
    await house.die()
    house.slurm.faults.slow("release", 10)

    async with asyncio.TaskGroup() as group:
        group.create_task(house.come_back(after_s=5))
        report = await house.look(batch=2)

    assert (report.away, report.released) == (False, tuple(keys[:2]))
    assert [house.slurm.job(key.job_id).held for key in keys] == [False, False, True, True]


@pytest.mark.parametrize("released_by", ["watchdog", "controller"])
async def test_a_job_that_a_controller_holds_again_meanwhile_keeps_its_mark(
    house: House, monkeypatch: pytest.MonkeyPatch, released_by: str
) -> None:
    # given a job that waits for its time, with our mark, and that the watchdog or a dead controller has released
    key, client = house.submit(begin_time_s=house.clock.now() + 3600), house.slurm.client
    await house.die()
    if released_by == "controller":
        assert await house.clock.run(client.release([key])) == {}
    unmark: Moody = client.unmark

    # when the next controller holds it before slurmctld takes the mark off
    async def late(of: Sequence[JobKey], *more: str, **options: bool) -> Failures:
        if of:
            house.beat()
            assert await client.hold(of) == {}
        return await unmark(of, *more, **options)

    monkeypatch.setattr(client, "unmark", late)
    await house.look()

    # then that controller finds it as its own
    job = house.slurm.job(key.job_id)
    assert (job.held, without_birthmark(job.admin_comment)) == (True, HOLD_MARK)


async def test_an_error_costs_one_run_of_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> tuple[ControllerSettings, str]:
        raise RuntimeError("a bug")

    assert await check_once(broken) == 1


def test_the_watchdog_runs_on(tmp_path: Path) -> None:
    """With --every: the third look ends it, as SIGTERM would."""
    settings = ControllerSettings(partitions=("dl",), slurm_client="embedded", runtime_dir=tmp_path)
    looks: list[int] = []

    def read() -> tuple[ControllerSettings, str]:
        looks.append(1)
        if len(looks) == 1:
            raise MemoryError
        if len(looks) == 2:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
        os.kill(os.getpid(), signal.SIGTERM)
        return settings, ""

    assert run_watchdog(read, every_s=0.01) == 0
    assert len(looks) == 3
    assert time.time() - last_check_s(tmp_path) < 3600


async def test_a_controller_that_hangs_in_its_turn_delays_the_watchdog_no_longer_than_its_commands_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a controller that was stopped in a turn, half a minute ago: its commands take ten seconds at most
    settings = ControllerSettings(
        partitions=("dl",), slurm_timeout_s=10, runtime_dir=tmp_path, heartbeat_interval_s=0.1
    )
    (tmp_path / "controller.turn").write_text(f"busy {os.getpid()} {time.monotonic() - 31} 1:2\n")
    looked: list[float] = []

    class Client:
        """Only its first call counts."""

        before_change: object = None

        def __init__(self, settings: ControllerSettings, *, only_marked: bool) -> None:
            looked.append(settings.slurm_timeout_s)

        async def snapshot(self) -> NoReturn:
            raise SlurmUnavailableError("enough for this test")

    monkeypatch.setattr("controller.slurm.select.command_line_client", Client)

    # when the watchdog checks
    async with asyncio.timeout(30):
        assert await check_once(lambda: (settings, "")) == 1

    # then it does not wait for that turn, although its own commands may take longer
    assert looked == [30.0]


@pytest.mark.parametrize(("active", "looks_at_slurm"), [(0, True), (1, False)])
async def test_the_watchdog_stands_by_where_slurmctld_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, active: int, looks_at_slurm: bool
) -> None:
    # given two machines of slurmctld, of which this is the first, and no lease here
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"SlurmctldHost={socket.gethostname()}\nSlurmctldHost=other\nStateSaveLocation={tmp_path}\n")
    (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", 1, active))
    settings = ControllerSettings(partitions=("dl",), slurm_conf=conf, runtime_dir=tmp_path, stand_by=True)
    looks: list[Path] = []

    def client(settings: ControllerSettings, *, only_marked: bool) -> NoReturn:
        looks.append(settings.runtime_dir)
        raise SlurmUnavailableError("enough for this test")

    monkeypatch.setattr("controller.slurm.select.command_line_client", client)

    # when it looks
    status = await check_once(lambda: (settings, ""))

    # then it turns to Slurm only where slurmctld is active
    assert (bool(looks), status) == (looks_at_slurm, int(looks_at_slurm))


@pytest.mark.parametrize(
    ("active", "age_s", "other"),
    [(1, 0, True), (1, 400, True), (0, 0, False), (1, 3600, False), (7, 0, False)],
    ids=["fresh-elsewhere", "within-the-timeout", "here", "stale", "damaged"],
)
@pytest.mark.parametrize("text", [None, "Include missing.conf\n", ""])
def test_a_slurm_conf_that_cannot_be_used_does_not_outweigh_a_fresh_heartbeat(
    tmp_path: Path, text: str | None, active: int, age_s: int, other: bool
) -> None:
    # given machines that an earlier check has seen
    conf, now = tmp_path / "slurm.conf", 1_800_000_000
    hosts = f"SlurmctldHost={socket.gethostname()}\nSlurmctldHost=other\nSlurmctldTimeout=600\n"
    conf.write_text(f"{hosts}StateSaveLocation={tmp_path}\n")
    settings = ControllerSettings(partitions=("dl",), slurm_conf=conf, runtime_dir=tmp_path, stand_by=True)
    assert not stands_by(settings, now)

    # when slurm.conf is missing or damaged
    conf.unlink()
    if text is not None:
        conf.write_text(text)
    (tmp_path / "heartbeat").write_bytes(struct.pack(">QQ", now - age_s, active))

    # then only a fresh heartbeat of the other machine counts, and nothing without the file of the earlier check
    assert stands_by(settings, now) is other
    for damaged in (
        "[[], 0",
        '[["a","b"],1e999,"/h",30]',
        f'[["a","b"],1,"/h",1{"0" * 400}]',
        '[["a","b"],1,"\\u0000",30]',
    ):
        (tmp_path / HOSTS_FILE).write_text(damaged)
        assert not stands_by(settings, now)


def test_no_damage_of_the_watchdogs_own_file_keeps_jobs_held(tmp_path: Path) -> None:
    # given a slurm.conf that is in order, and a file of an earlier check with a number that is none
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"SlurmctldHost={socket.gethostname()}\nSlurmctldHost=other\nStateSaveLocation={tmp_path}\n")
    (tmp_path / HOSTS_FILE).write_text('[["a","b"],1e999,"/h",30]')
    settings = ControllerSettings(partitions=("dl",), slurm_conf=conf, runtime_dir=tmp_path, stand_by=True)

    assert not stands_by(settings, 1_800_000_000)
    assert "1e999" not in (tmp_path / HOSTS_FILE).read_text(), "the next check can use it"


@pytest.mark.parametrize("line", ["StateSaveLocation=/a\0b", "SlurmctldTimeout=1" + "0" * 5000])
def test_no_text_in_slurm_conf_keeps_jobs_held(tmp_path: Path, line: str) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(f"SlurmctldHost={socket.gethostname()}\nSlurmctldHost=other\n{line}\n")
    settings = ControllerSettings(partitions=("dl",), slurm_conf=conf, runtime_dir=tmp_path, stand_by=True)

    assert not stands_by(settings, 1_800_000_000)


@pytest.mark.parametrize(("beat_s", "wait_s"), [(0.5, 2.0), (1.0, 3.0), (20.0, 60.0)])
def test_a_lease_is_stale_only_after_several_heartbeats(beat_s: float, wait_s: float) -> None:
    assert confirm_s(beat_s) == wait_s


async def test_a_controller_that_continues_waits_for_the_end_of_a_release(house: House) -> None:
    # given a controller that was stopped, and a watchdog that has begun to release its jobs
    key = house.submit(request=sbatch_request(gpus=2))
    names = sorted(node.name for node in (await house.slurm.client.snapshot()).nodes)
    await house.pin(key, 1, *names[:2])
    await house.die()
    turn = controller_turn(house.path.parent, 10.0, house.clock)
    real_unpin = house.slurm.client.unpin
    seen: list[tuple[bool, int | None]] = []

    async def controller() -> None:
        async with turn.taken():
            job = (await house.slurm.client.read([key]))[key]
            seen.append((job.held, job.request.gpus_per_job))

    continues: list[asyncio.Future[None]] = []

    async def unpin(originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        # when the controller continues before the release
        answer = await real_unpin(originals)
        continues.append(asyncio.ensure_future(controller()))
        await house.clock.sleep(1.0)
        return answer

    house.slurm.client.unpin = unpin  # type: ignore[method-assign]
    await house.look()
    await house.clock.advance(1.0)
    # then it reads the job only after the release
    await continues[0]
    assert seen == [(False, 2)]


async def test_a_controller_in_a_cycle_keeps_its_jobs_until_it_gives_no_sign_of_life(house: House) -> None:
    key = house.submit()
    await house.die()
    turn = controller_turn(house.path.parent, 10.0, house.clock)
    async with turn.taken():
        look = asyncio.ensure_future(house.watchdog().check())
        await house.clock.advance(25.0)
        assert house.slurm.job(key.job_id).held
        await house.clock.advance(10.0)
        assert (await look).released == (key,)
        with pytest.raises(TurnLostError):
            turn.check()


@pytest.mark.parametrize("more", [{"left_out": 3}, {"unread": frozenset({97, 98, 99})}], ids=["left out", "unread"])
async def test_a_check_that_had_no_room_for_all_jobs_leaves_work_for_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    house.submit()
    real = house.slurm.client.snapshot

    async def crowded() -> SlurmSnapshot:
        return replace(await real(), **more)

    monkeypatch.setattr(house.slurm.client, "snapshot", crowded)
    await house.die()
    report = await house.look()
    assert (len(report.released), report.still_held, report.left_out, report.complete) == (1, (), 3, False)
    assert not (await house.look()).complete, "also when no job of this check was held"
    monkeypatch.undo()
    assert (await house.look()).complete
