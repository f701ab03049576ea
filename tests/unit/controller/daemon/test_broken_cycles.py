"""Changes that only cycles which broke off have seen are reported by the next good one, and by no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import HeadwayError, TurnLostError
from controller.cycle.view.result import CycleResult
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.notify.message import Notification
from controller.notify.source import NotificationSource
from controller.slurm.model.job import JobKey, Phase
from controller.state.preemption import Cause, Preemption
from tests.birthmarks import without_birthmark
from tests.unit.controller.worlds.world import World


class Scene:
    """A controller of a small cluster, its results, and its notifications."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder, policy="fifo-skip")
        self.world.write_lease()
        self.controller = Controller(
            self.world.settings,
            self.world.slurm.client,
            self.world.decider,
            self.world.journal,
            self.world.clock,
            refused,
        )
        self.results: list[CycleResult] = []
        self.sent: list[Notification] = []
        source = NotificationSource(self.controller, self.sent.append)
        self.controller.listeners += [self.results.append, source.on_cycle]
        self.controller.preemptions.listeners.append(source.on_preemption)

    async def cycles(self, wake: WakePipe, number: int = 1, *, apart_s: float = 2.0) -> None:
        for _ in range(number):
            await self.controller._one_cycle(wake)
            await self.world.clock.advance(apart_s)

    def words(self) -> list[tuple[str, str]]:
        return [(each.job.key.job_id, each.event.value) for each in self.sent]

    def reported(self, kind: str) -> list[JobKey]:
        return [job.key for result in self.results for job in getattr(result.changes, kind)]

    def runs(self) -> list[JobKey]:
        return [run.key for result in self.results for run in result.runs]


def refused(_address: str) -> Any:
    raise AssertionError("no policy is swapped here")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
async def wake(scene: Scene) -> AsyncIterator[WakePipe]:
    with closing(WakePipe(scene.world.settings.wake_path)) as pipe:
        yield pipe


class Breaks:
    """Breaks off every cycle at one of its steps, by an error, until it is mended."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
        self._patch = patch

        def broken(*_: Any, **__: Any) -> Any:
            raise error

        patch.setattr(owner, name, broken)

    def mend(self) -> None:
        self._patch.undo()


def break_at(place: str, scene: Scene, patch: pytest.MonkeyPatch) -> Breaks:
    cycle = scene.controller._cycle
    match place:
        case "preemptions":
            return Breaks(patch, scene.controller.preemptions, "update", HeadwayError("the journal is full"))
        case "observing":
            return Breaks(patch, cycle, "_observe", ValueError("a bug"))
        case "deciding":
            return Breaks(patch, scene.world.decider, "decide", HeadwayError("a fault of the policy"))
        case _:
            return Breaks(patch, scene.controller._turn, "check", TurnLostError("another process works"))


PLACES = ("preemptions", "observing", "deciding", "the end")


@pytest.mark.parametrize("place", PLACES)
async def test_changes_seen_by_broken_cycles_are_reported_once(
    scene: Scene, wake: WakePipe, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given one job that runs, and one that is placed; another one waits, so that every cycle decides
    first = scene.world.sbatch(6.0, gpus_per_node=8)
    await scene.cycles(wake, 3)
    second = scene.world.sbatch(1000.0, gpus_per_node=8)
    scene.world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await scene.cycles(wake, 1, apart_s=0.0)
    assert scene.words() == [(first.job_id, "started")]
    # when it ends, and the other one starts, while all cycles break off after their snapshots
    broken = break_at(place, scene, monkeypatch)
    before = len(scene.results)
    await scene.world.clock.advance(6.0)
    await scene.cycles(wake, 3)
    assert len(scene.results) == before
    # then the next good cycle reports both, and no later one does it again
    broken.mend()
    await scene.cycles(wake, 3)
    assert scene.words() == [(first.job_id, "started"), (second.job_id, "started"), (first.job_id, "ended")]
    assert scene.reported("started") == [first, second]
    assert scene.reported("ended") == scene.runs() == [first]
    assert [each.job_id for each in scene.controller.outcomes._waiting] == [first.job_id]


@pytest.mark.parametrize("place", ["preemptions", "observing"])
async def test_a_job_that_started_in_a_broken_cycle_loses_its_mark_after_it(
    scene: Scene, wake: WakePipe, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = scene.world.sbatch(1000.0, gpus_per_node=8)
    scene.world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await scene.cycles(wake, 1)
    job = scene.world.slurm.job(key.job_id)
    assert job.phase.occupies_nodes
    assert "headway:pinned" in job.admin_comment
    broken = break_at(place, scene, monkeypatch)
    await scene.cycles(wake, 2)
    broken.mend()
    await scene.cycles(wake, 1)
    assert without_birthmark(scene.world.slurm.job(key.job_id).admin_comment) == ""


async def test_jobs_that_ran_before_the_controller_are_not_notified_when_its_first_cycles_break(
    scene: Scene, wake: WakePipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a job that runs already
    old = scene.world.sbatch(1000.0, gpus_per_node=8)
    await scene.world.turn()
    await scene.world.clock.advance(5.0)
    assert scene.world.phase(old).occupies_nodes
    # when the first cycle of a controller breaks off, and another job starts before its first good one
    young = scene.world.sbatch(1000.0, gpus_per_node=8)
    broken = break_at("the end", scene, monkeypatch)
    await scene.cycles(wake, 1)
    broken.mend()
    # then only the second start is news
    await scene.cycles(wake, 2)
    assert scene.words() == [(young.job_id, "started")]


async def test_two_runs_of_a_job_in_broken_cycles_are_notified_in_their_order(
    scene: Scene, wake: WakePipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = scene.world.sbatch(1000.0, gpus_per_node=8)
    scene.world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await scene.cycles(wake, 1, apart_s=0.0)
    broken = break_at("the end", scene, monkeypatch)
    await scene.cycles(wake, 2)
    scene.world.slurm.requeue(key.job_id)
    await scene.cycles(wake, 5)
    assert scene.world.slurm.job(key.job_id).restarts == 1
    assert scene.world.phase(key).occupies_nodes
    scene.world.slurm.cancel(key.job_id)
    await scene.cycles(wake, 1)
    broken.mend()
    await scene.cycles(wake, 1)
    mine = [word for job_id, word in scene.words() if job_id == key.job_id]
    assert mine == ["started", "resumed", "ended"]


async def test_a_job_that_starts_and_is_stopped_in_broken_cycles_is_notified_in_this_order(
    scene: Scene, wake: WakePipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = scene.world.sbatch(1000.0, gpus_per_node=8, traps=frozenset({"USR1"}), comment="headway=preemptible")
    scene.world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await scene.cycles(wake, 1, apart_s=0.0)
    broken = break_at("the end", scene, monkeypatch)
    await scene.cycles(wake, 2)
    snapshot = scene.controller.newest_snapshot
    assert snapshot is not None
    job = next(job for job in snapshot.jobs if job.key == key)
    row = scene.controller.preemptions.begin(job, Cause.OPERATOR, "by hand")
    scene.controller.preemptions.orders()
    scene.controller.preemptions.stopped(row, None)
    broken.mend()
    await scene.cycles(wake, 1)
    assert [word for job_id, word in scene.words() if job_id == key.job_id] == ["started", "preempted"]


@pytest.mark.parametrize("place", PLACES)
async def test_the_newest_snapshot_is_not_that_of_the_last_good_cycle(
    scene: Scene, wake: WakePipe, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents and measurements take it as the present: a run that has ended must not stay there while a policy is broken."""
    key = scene.world.sbatch(6.0, gpus_per_node=8)
    scene.world.sbatch(1000.0, gpus_per_node=8, nodes=4)
    await scene.cycles(wake, 2)
    assert phases(scene)[key.job_id] is Phase.RUNNING
    break_at(place, scene, monkeypatch)
    await scene.world.clock.advance(10.0)
    await scene.cycles(wake, 1)
    assert phases(scene)[key.job_id] is Phase.ENDED


def phases(scene: Scene) -> dict[str, Phase]:
    snapshot = scene.controller.newest_snapshot
    assert snapshot is not None
    return {job.key.job_id: job.phase for job in snapshot.jobs}


async def test_a_listener_that_fails_hides_nothing_from_the_others(scene: Scene, wake: WakePipe) -> None:
    def failing(_result: CycleResult) -> None:
        raise ValueError("a bug in one service")

    scene.controller.listeners.insert(0, failing)
    key = scene.world.sbatch(4.0, gpus_per_node=8)
    await scene.cycles(wake, 5)
    assert scene.words() == [(key.job_id, "started"), (key.job_id, "ended")]
    assert [each.job_id for each in scene.controller.outcomes._waiting] == [key.job_id]
    assert scene.controller.health.failures >= 5
    # and it is shown: once in the events, and in the status for as long as it fails
    (shown,) = [event.text for event in scene.controller.events.recent() if event.kind == "error"]
    assert "failing" in shown
    assert shown.endswith("ValueError: a bug in one service")
    assert scene.controller.health.last_error == shown
    scene.controller.listeners.pop(0)
    await scene.cycles(wake, 1)
    assert scene.controller.health.last_error == ""


async def test_a_listener_of_preemptions_that_fails_is_counted_and_shown_once(scene: Scene, wake: WakePipe) -> None:
    def failing(_row: Preemption) -> None:
        raise ValueError("a bug in one service")

    scene.controller.preemptions.listeners.insert(0, failing)
    key = scene.world.sbatch(1000.0, gpus_per_node=8, traps=frozenset({"USR1"}), comment="headway=preemptible")
    await scene.cycles(wake, 3)
    job = next(job for job in scene.results[-1].observation.snapshot.jobs if job.key == key)
    row = scene.controller.preemptions.begin(job, Cause.OPERATOR, "by hand")
    scene.controller.preemptions.orders()
    scene.controller.preemptions.stopped(row, None)
    assert scene.words() == [(key.job_id, "started"), (key.job_id, "preempted")]
    assert scene.controller.health.failures == 2
    (shown,) = [event.text for event in scene.controller.events.recent() if event.kind == "error"]
    assert shown.endswith("ValueError: a bug in one service")


async def test_a_journal_that_cannot_drop_old_rows_hides_no_outcome(
    scene: Scene, wake: WakePipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = scene.world.sbatch(4.0, gpus_per_node=8)
    await scene.cycles(wake, 2)
    scene.controller._pruned_s = None
    Breaks(monkeypatch, scene.world.journal, "prune", HeadwayError("the disk is full"))
    await scene.world.clock.advance(6.0)
    await scene.cycles(wake, 1)
    assert [each.job_id for each in scene.controller.outcomes._waiting] == [key.job_id]
