"""A job whose node dies while the controller is away leaves that node: only the journal shows that its user did not name it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from controller.base.turn import watchdog_turn
from controller.daemon.watchdog.requeued import own_requests
from controller.daemon.watchdog.watchdog import Watchdog, WatchdogReport
from controller.slurm.client import Failures
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK
from controller.state.journal_salvage import read_originals, read_placed
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.world import World


class Away(World):
    """A world whose controller can die, with a watchdog."""

    def die(self) -> None:
        self.alive = False
        self.journal.close()

    def come_back(self) -> None:
        self.alive = True
        self.restart()

    @property
    def file(self) -> Path:
        return self.folder / "journal.sqlite"

    def watchdog(self, placed: Callable[[], Any] | None = None) -> Watchdog:
        turn = watchdog_turn(self.settings.runtime_dir, 10.0, self.clock)
        return Watchdog(
            self.slurm.client, self.folder / "no-lease", lambda: read_originals(self.file), self.clock, 0.0, turn,
            holds=self.holds, placed=placed or (lambda: read_placed(self.file)),
        )  # fmt: skip

    async def look(self, placed: Callable[[], Any] | None = None) -> WatchdogReport:
        """One run of the timer."""
        return await self.clock.run(self.watchdog(placed).check())

    async def placed_and_requeued(
        self, nodelist: tuple[str, ...] = (), nodes: int = 1
    ) -> tuple[JobKey, frozenset[str]]:
        """A job that the controller placed before it died, and that Slurm then requeued because its first node died."""
        await self.turn()
        key = self.sbatch(1000.0, request=sbatch_request(gpus_per_node=8, nodes=nodes, nodelist=nodelist))
        await self.go_on(5)
        before = frozenset(self.nodes(key))
        self.die()
        self.slurm.node_down(min(before))
        await self.clock.advance(200)
        job = self.slurm.job(key.job_id)
        assert (job.phase, job.held, without_birthmark(job.admin_comment), job.restarts) == (
            Phase.PENDING,
            False,
            "",
            1,
        )
        assert set(job.request.required_nodes) == before, "Slurm keeps the nodes of the placement"
        (again,) = [job.key for job in (await self.slurm.client.snapshot()).jobs if job.key.job_id == key.job_id]
        return again, before


@pytest.fixture
def world(tmp_path: Path) -> Away:
    return Away(tmp_path)


@pytest.mark.parametrize("nodes", [1, 2])
async def test_a_placed_job_leaves_its_dead_node_without_a_controller(world: Away, nodes: int) -> None:
    key, before = await world.placed_and_requeued(nodes=nodes)

    report = await world.look()
    await world.clock.advance(10)

    assert report == WatchdogReport(away=True, released=(key,))
    job = world.slurm.job(key.job_id)
    assert (job.phase, without_birthmark(job.admin_comment)) == (Phase.RUNNING, "")
    assert min(before) not in world.nodes(key)
    # and nothing is left to do
    assert await world.look() == WatchdogReport(away=True)


async def test_the_controller_that_is_back_knows_the_job(world: Away) -> None:
    key, before = await world.placed_and_requeued()
    await world.look()
    await world.clock.advance(10)
    (second,) = world.nodes(key)
    world.come_back()
    await world.go_on(10)
    assert world.nodes(key) == {second: 8}
    assert world.ledger.originals.get(key, sbatch_request(gpus_per_node=8)).required_nodes == ()
    world.slurm.node_down(second)
    await world.go_on(300, 5.0)
    assert world.phase(key) is Phase.RUNNING
    assert not {second, *before} & world.nodes(key).keys()


async def test_nodes_that_the_user_named_stay(world: Away) -> None:
    key, before = await world.placed_and_requeued(nodelist=("n3",))

    assert await world.look() == WatchdogReport(away=True)
    assert set(world.slurm.job(key.job_id).request.required_nodes) == before == {"n3"}


async def test_a_hold_of_the_user_counts(world: Away) -> None:
    key, _ = await world.placed_and_requeued()
    world.slurm.user_hold(key.job_id)

    assert await world.look() == WatchdogReport(away=True)
    job = world.slurm.job(key.job_id)
    assert (job.held, without_birthmark(job.admin_comment)) == (True, "")


@pytest.mark.parametrize("verb", ["hold", "unpin", "release"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_hold_of_the_user_meanwhile_counts(
    world: Away, monkeypatch: pytest.MonkeyPatch, verb: str, after: bool
) -> None:
    key, _ = await world.placed_and_requeued()
    done: list[bool] = []

    async def user_holds(call: Callable[[], Awaitable[Failures]]) -> Failures:
        if not after and not done:
            done.append(True)
            world.slurm.user_hold(key.job_id)
        failures = await call()
        if after and not done:
            done.append(True)
            world.slurm.user_hold(key.job_id)
        return failures

    _around(monkeypatch, world, verb, user_holds)
    await world.look()
    await world.clock.advance(30)
    await world.look()
    await world.clock.advance(30)

    assert done
    assert (world.phase(key), world.slurm.job(key.job_id).held) == (Phase.PENDING, True)


async def test_a_controller_that_is_back_meanwhile_gets_the_job(world: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    key, before = await world.placed_and_requeued()
    watchdog = world.watchdog()

    async def comes_back(call: Callable[[], Awaitable[Failures]]) -> Failures:
        failures = await call()
        monkeypatch.setattr(watchdog, "_stale_now", lambda: False)
        return failures

    _around(monkeypatch, world, "hold", comes_back)
    assert await world.clock.run(watchdog.check()) == WatchdogReport(away=False)
    job = world.slurm.job(key.job_id)
    assert (job.held, without_birthmark(job.admin_comment)) == (True, HOLD_MARK)
    world.come_back()
    await world.go_on(10)
    assert world.phase(key) is Phase.RUNNING
    assert not before & world.nodes(key).keys()


async def test_a_watchdog_that_is_killed_meanwhile_is_continued_by_the_next(
    world: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, before = await world.placed_and_requeued()

    async def killed(_call: Callable[[], Awaitable[Failures]]) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        _around(patch, world, "unpin", killed)
        with pytest.raises(KeyboardInterrupt):
            await world.watchdog().check()
    assert world.slurm.job(key.job_id).held
    for _ in range(2):
        assert (await world.look()).released == (key,)
        await world.clock.advance(30)
    assert world.phase(key) is Phase.RUNNING
    assert not before & world.nodes(key).keys()


async def test_held_jobs_are_released_first_and_without_a_journal(world: Away) -> None:
    key, before = await world.placed_and_requeued()
    world.alive = True
    held = world.sbatch(1000.0, gpus_per_node=1)
    world.alive = False

    def unreadable() -> NoReturn:
        raise OSError("no such disk")

    assert (await world.look(unreadable)).released == (held,)
    assert set(world.slurm.job(key.job_id).request.required_nodes) == before


async def test_of_a_damaged_journal_the_sound_rows_are_used(world: Away) -> None:
    other = world.sbatch(1000.0, gpus_per_node=8)
    key, before = await world.placed_and_requeued()
    with closing(sqlite3.connect(world.file)) as db, db:
        assert db.execute("UPDATE job SET pin = '{' WHERE job_id = ?", (other.job_id,)).rowcount == 1
    world.slurm.node_down(min(world.nodes(other)))
    await world.clock.advance(200)

    assert (await world.look()).released == (key,)
    await world.clock.advance(10)
    assert not before & world.nodes(key).keys()
    assert world.phase(other) is Phase.PENDING


async def test_a_job_that_is_another_one_keeps_its_nodes(world: Away) -> None:
    """Slurm has issued the id again; or the user has changed the request since."""
    key, _ = await world.placed_and_requeued()
    (job,) = (await world.slurm.client.read([key])).values()
    placed = read_placed(world.file)
    (former,) = placed
    assert list(own_requests([job], placed)) == [key]
    original, pin = placed[former]
    others = [
        replace(job, request=replace(job.request, gpus_per_node=4)),
        replace(job, request=replace(job.request, required_nodes=("n4",))),
        replace(job, key=JobKey(job.key.job_id, former.submit_time_s - 10)),
        replace(job, key=JobKey("99", job.key.submit_time_s)),
        replace(job, restarts=pin.restarts),
        replace(job, expedited=True),
        replace(job, phase=Phase.RUNNING),
        replace(job, held=True),
    ]

    assert own_requests(others, placed) == {}
    # and the newest row of an id counts
    newer = {JobKey(key.job_id, former.submit_time_s + 1): (original, replace(pin, nodes=("n4",)))}
    assert own_requests([job], placed | newer) == {}
    assert own_requests([job], {former._replace(cluster="other"): placed[former]}) == {}


def _around(
    patch: pytest.MonkeyPatch,
    world: Away,
    verb: str,
    around: Callable[[Callable[[], Awaitable[Failures]]], Awaitable[Failures]],
) -> None:
    """Have a verb of Slurm's client called by `around`."""
    real = getattr(world.slurm.client, verb)

    async def called(keys: Sequence[JobKey], *more: Any, **options: Any) -> Failures:
        return await around(lambda: real(keys, *more, **options))

    patch.setattr(world.slurm.client, verb, called)
