"""GPU time of users: how it is counted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.report.usage import USAGE_S, UsageReports
from controller.admin.viewer import Viewer
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.model.job import JobKey
from controller.slurm.model.shares import Shares
from controller.state.journal import Journal, RunRecord
from controller.state.ledger import Served
from controller.state.usage import EndedUse, read_ended_use
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in

HOUR_S = 3600.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for one cluster."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


def run(number: int, user: str, end_s: float, service_s: float, gpus: int) -> RunRecord:
    return RunRecord(JobKey(str(number), 1), user, "train", end_s - service_s, end_s, service_s, gpus, 1, "COMPLETED")


async def world_of(folder: Path, ran_s: float = 60.0) -> ControllerWorld:
    """A world with a job of ann that has run for so long, and one of bob that waits."""
    world = world_in(folder)
    world.endpoint.away = True
    world.sbatch(1e6, gpus_per_node=8, nodes=3, user="ann")
    await world.go_on(ran_s)
    world.sbatch(1e6, gpus_per_node=8, nodes=4, user="bob")
    await world.go_on(2)
    return world


async def test_ended_and_present_jobs_are_added_up_by_user(folder: Path) -> None:
    # given a job of ann that has run on 24 GPUs for an hour, one of bob that waits, and ended jobs of bob and cem
    world = await world_of(folder, HOUR_S)
    now_s = world.clock.now()
    world.journal.record_runs(
        [
            run(101, "bob", now_s - 100, 2 * HOUR_S, 4),
            run(102, "bob", now_s - 200, HOUR_S, 1),
            run(103, "cem", now_s - USAGE_S - 10, HOUR_S, 8),  # ended before
            run(104, "cem", now_s - USAGE_S + HOUR_S, 9 * HOUR_S, 1),  # one hour of it counts
            run(105, "cem", now_s - 10, HOUR_S, 0),
        ]
    )
    # when the usage is asked for
    found = await UsageReports(Viewer(world)).usage("", private=False)
    # then it has all of them
    assert found.all_users
    assert found.since_s == pytest.approx(now_s - USAGE_S)
    ann, bob, cem = found.users
    assert (ann.user, ann.jobs_running, ann.gpus_running, ann.jobs_waiting) == ("ann", 1, 24, 0)
    assert ann.gpu_hours == pytest.approx(24, rel=0.01)
    assert (bob.user, bob.jobs_ended, bob.jobs_waiting, bob.gpus_waiting, bob.gpus_running) == ("bob", 2, 1, 32, 0)
    assert bob.gpu_hours == pytest.approx(9, rel=0.01)
    assert (cem.user, cem.jobs_ended) == ("cem", 1)
    assert cem.gpu_hours == pytest.approx(1, rel=0.01)
    assert not cem.HasField("fair_share")


async def test_the_runs_of_a_resized_job_count_with_their_own_gpus(folder: Path) -> None:
    # given a job that has run on 16 GPUs for 10 hours, and for 2 hours on one
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(2 * HOUR_S, gpus_per_node=1, user="ann")
    await world.go_on(3)
    world.ledger.served[key] = Served(10 * HOUR_S, 160 * HOUR_S, key.submit_time_s - 40_000)
    await world.clock.advance(2 * HOUR_S - 100)
    await world.turn()
    running = await UsageReports(Viewer(world)).usage("", private=False)
    # when it ends
    await world.go_on(120)
    ended = await UsageReports(Viewer(world)).usage("", private=False)
    # then nothing is lost
    assert [user.gpu_hours for user in running.users] == [pytest.approx(162, rel=0.01)]
    assert [(user.gpu_hours, user.jobs_ended) for user in ended.users] == [(pytest.approx(162, rel=0.01), 1)]


def test_no_job_counts_more_than_its_gpus_on_average_since_the_beginning(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "state" / "journal.sqlite")) as journal:
        journal.record_runs([replace(run(1, "ann", 10_000.0, 4000.0, 1), gpu_s=32_000.0)])
        assert read_ended_use(journal.path, 9000.0) == {"ann": EndedUse(1, 8 * 1000.0)}


async def test_a_private_answer_has_one_user_and_no_sum_of_others(folder: Path) -> None:
    world = await world_of(folder)
    reports = UsageReports(Viewer(world))
    found = await reports.usage("bob", private=True)
    assert (found.all_users, [user.user for user in found.users]) == (False, ["bob"])
    assert not (await reports.usage("dan", private=True)).users


async def test_waits_of_ended_jobs_are_counted_by_size(folder: Path) -> None:
    # given jobs of bob and cem that waited for one to four minutes, one that never ran, and one that ended long ago
    world = await world_of(folder)
    now_s = int(world.clock.now())

    def waited(
        number: int, user: str, wait_s: float, gpus: int, ended_s: float = 10.0, ran_s: float = 60.0
    ) -> RunRecord:
        end_s = now_s - ended_s
        found = run(number, user, end_s, ran_s, gpus)
        return replace(found, key=JobKey(str(number), int(end_s - ran_s - wait_s)))

    world.journal.record_runs(
        [
            waited(101, "bob", 60.0, 3),
            waited(102, "bob", 120.0, 4),
            waited(103, "cem", 240.0, 4),
            waited(104, "cem", 180.0, 1000),
            replace(waited(105, "cem", 9000.0, 4), start_time_s=None, service_s=0.0),
            replace(waited(107, "cem", 9000.0, 4), start_time_s=now_s - 10.0),  # cancelled in its second wait
            waited(106, "bob", 9000.0, 4, ended_s=USAGE_S + 10),
        ]
    )
    # then all of them count, or those of one user
    reports = UsageReports(Viewer(world))
    found = await reports.usage("", private=False)
    assert [(row.most_gpus, row.jobs, row.p50_s, row.p95_s) for row in found.waits] == [
        (4, 3, 120.0, 240.0), (0, 1, 180.0, 180.0),
    ]  # fmt: skip
    own = await reports.usage("bob", private=True)
    assert [(row.most_gpus, row.jobs, row.p50_s, row.p95_s) for row in own.waits] == [(4, 2, 60.0, 120.0)]


async def test_fair_shares_are_slurms_own_the_largest_of_a_user(folder: Path) -> None:
    world = await world_of(folder)
    factors = {("lab", "ann", ""): 0.25, ("lab", "ann", "dl"): 0.5, ("lab", "dan", ""): 1.0}
    world.knowledge.set_priorities(PriorityFacts(shares=Shares(fair_share=factors)))
    found = await UsageReports(Viewer(world)).usage("", private=False)
    assert {user.user: user.fair_share for user in found.users if user.HasField("fair_share")} == {"ann": 0.5}


async def test_the_journal_is_read_once_a_minute(folder: Path) -> None:
    world = await world_of(folder)
    reports = UsageReports(Viewer(world))
    await reports.usage("", private=False)
    world.journal.record_runs([run(101, "cem", world.clock.now(), HOUR_S, 4)])
    assert [user.user for user in (await reports.usage("", private=False)).users] == ["ann", "bob"]
    await world.go_on(61)
    assert "cem" in [user.user for user in (await reports.usage("", private=False)).users]


async def test_a_job_that_has_ended_counts_at_once(folder: Path) -> None:
    # given a job whose usage was asked for just before its end
    world = world_in(folder)
    world.endpoint.away = True
    world.sbatch(2 * HOUR_S, gpus_per_node=8, nodes=4, user="ann")
    await world.go_on(3)
    await world.clock.advance(2 * HOUR_S - 10)
    await world.turn()
    reports = UsageReports(Viewer(world))
    await reports.usage("", private=False)
    # when it ends
    await world.go_on(20)
    (ann,) = (await reports.usage("", private=False)).users
    # then it is neither lost nor counted twice
    assert (ann.gpu_hours, ann.jobs_ended, ann.jobs_running) == (pytest.approx(64, rel=0.01), 1, 0)


async def test_a_job_that_ends_during_a_reading_counts_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_of(folder, HOUR_S)
    cycles = [lambda: world.slurm.cancel("1")]

    async def read(work: Callable[..., object], *values: object) -> object:
        found = work(*values)
        if cycles:
            cycles.pop()()
            await world.go_on(20)
        return found

    monkeypatch.setattr("asyncio.to_thread", read)
    ann = (await UsageReports(Viewer(world)).usage("", private=False)).users[0]
    assert (ann.gpu_hours, ann.jobs_ended, ann.jobs_running) == (pytest.approx(24, rel=0.02), 1, 0)


async def test_jobs_that_policies_do_not_see_count(folder: Path) -> None:
    # given a job that has run for an hour
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(1e6, gpus_per_node=8, nodes=3, user="ann")
    await world.go_on(HOUR_S)
    # when it is requeued, and its user holds it, and cancels it
    world.slurm.requeue(key.job_id)
    world.slurm.user_hold(key.job_id)
    await world.go_on(30)
    held = await UsageReports(Viewer(world)).usage("", private=False)
    world.slurm.cancel(key.job_id)
    await world.go_on(30)
    ended = await UsageReports(Viewer(world)).usage("", private=False)
    # then its GPU hours are still there
    assert [user.gpu_hours for user in (*held.users, *ended.users)] == [pytest.approx(24, rel=0.02)] * 2
    assert [user.jobs_ended for user in (*held.users, *ended.users)] == [0, 1]


async def test_a_journal_that_cannot_be_read_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await world_of(folder)
    monkeypatch.setattr(type(world.journal), "path", property(lambda _: folder / "nowhere.sqlite"))
    with pytest.raises(CallRefused, match=r"nowhere\.sqlite cannot be read") as caught:
        await UsageReports(Viewer(world)).usage("", private=False)
    assert caught.value.reason is Reason.JOURNAL_FAILED


async def test_names_in_the_journal_are_never_part_of_the_query(folder: Path) -> None:
    world = await world_of(folder)
    name = "x'; DROP TABLE run; --"
    world.journal.record_runs([run(101, name, 5000.0, HOUR_S, 2)])
    assert read_ended_use(world.journal.path, 1000.0) == {name: EndedUse(1, 2 * HOUR_S)}
