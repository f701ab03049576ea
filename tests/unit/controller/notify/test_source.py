"""Notifications of a controller beside an embedded Slurm: one for each event of a job."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.notify.message import JobEvent, Notification
from controller.notify.source import NotificationSource
from controller.slurm.model.job import JobKey, SlurmJob
from controller.state.preemption import Cause, RelocationConstraint
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in


@pytest.fixture
def world() -> Iterator[ControllerWorld]:
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        world = world_in(Path(path))
        world.endpoint.away = True
        yield world


def listening(world: ControllerWorld) -> list[Notification]:
    """Collect the notifications of the world's controller from now on."""
    sent: list[Notification] = []
    source = NotificationSource(world, sent.append)
    world.listeners[:] = [source.on_cycle]
    world.preemptions.listeners.append(source.on_preemption)
    return sent


def words(sent: list[Notification]) -> list[tuple[str, str]]:
    return [(each.job.key.job_id, each.event.value) for each in sent]


def declared(world: ControllerWorld, duration_s: float = 1e6, **more: Any) -> JobKey:
    """Submit a job whose user says that it requeues itself on a signal."""
    options = {"traps": frozenset({"USR1"}), "comment": "headway=preemptible", "gpus_per_node": 8, **more}
    return world.sbatch(duration_s, **options)


def job_of(world: ControllerWorld, key: JobKey) -> SlurmJob:
    assert world.last is not None
    return next(job for job in world.last.observation.snapshot.jobs if job.key.job_id == key.job_id)


async def preempted(world: ControllerWorld, key: JobKey, constraint: RelocationConstraint) -> None:
    """Preempt a job, and let it run again."""
    world.preemptions.begin(job_of(world, key), Cause.OPERATOR, "job 99 waits", constraint=constraint)
    await world.go_on(3)
    world.slurm.requeue(key.job_id)
    await world.go_on(8)


async def test_a_job_starts_and_ends(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    key = world.sbatch(20.0, gpus_per_node=8, user="alice")
    await world.go_on(40)

    assert words(sent) == [(key.job_id, "started"), (key.job_id, "ended")]
    assert sent[0].job.user == "alice"
    assert sent[0].cluster == world.facts.cluster_name  # type: ignore[union-attr]
    assert sent[0].text.endswith("with 8 GPUs")
    assert sent[1].text.endswith("has ended: COMPLETED")


async def test_a_job_that_runs_between_two_cycles_starts_and_ends(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    short, cancelled = world.sbatch(3.0, gpus_per_node=8), world.sbatch(20.0, gpus_per_node=8)
    await world.turn()
    assert not sent
    # one job is over, and the other one is cancelled before it starts, when the controller looks again
    world.slurm.cancel(cancelled.job_id)
    await world.clock.advance(30.0)
    await world.turn()

    assert words(sent) == [(short.job_id, "started"), (short.job_id, "ended"), (cancelled.job_id, "ended")]
    # and the log of events has the same
    logged = [(event.job_id, event.kind) for event in world.events.recent() if event.kind in {"started", "ended"}]
    assert sorted(logged) == sorted(words(sent))


async def test_a_job_that_is_preempted_and_moved(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    key = declared(world)
    await world.go_on(3)
    node = next(iter(world.nodes(key)))
    await preempted(world, key, RelocationConstraint(avoid=frozenset({node})))

    assert words(sent) == [(key.job_id, event) for event in ("started", "preempted", "moved")]
    assert node not in sent[2].text
    assert "99" not in sent[1].text  # Slurm may keep the jobs of others private


async def test_a_job_that_comes_back_to_its_nodes_is_resumed(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    key = declared(world)
    await world.go_on(3)
    await preempted(world, key, RelocationConstraint(only=frozenset(world.nodes(key))))

    assert words(sent) == [(key.job_id, event) for event in ("started", "preempted", "resumed")]


async def test_a_job_that_slurm_requeues_is_resumed_and_not_preempted(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    key = world.sbatch(1e6, gpus_per_node=8)
    await world.go_on(3)
    world.slurm.requeue(key.job_id)
    await world.go_on(8)

    assert words(sent) == [(key.job_id, "started"), (key.job_id, "resumed")]


async def test_a_restarted_controller_repeats_nothing(world: ControllerWorld) -> None:
    # Given a job that runs, and one that was stopped and waits
    listening(world)
    await world.turn()
    runs, stopped = world.sbatch(1e6, gpus_per_node=8), declared(world)
    await world.go_on(3)
    node = next(iter(world.nodes(stopped)))
    world.preemptions.begin(
        job_of(world, stopped), Cause.OPERATOR, "by hand", constraint=RelocationConstraint(avoid=frozenset({node}))
    )
    await world.go_on(3)
    world.slurm.requeue(stopped.job_id)
    await world.turn()
    # When the controller is killed and started again
    world.restart()
    sent = listening(world)
    await world.go_on(10)
    # Then only what has happened since is sent, and the new one knows where the job was
    assert runs.job_id not in [job_id for job_id, _ in words(sent)]
    assert words(sent) == [(stopped.job_id, "moved")]


async def test_memory_is_bounded_and_forgets_jobs_that_ended(
    world: ControllerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.notify.source._MOST_STOPPED", 3)
    sent: list[Notification] = []
    source = NotificationSource(world, sent.append)
    world.listeners.append(source.on_cycle)
    world.preemptions.listeners.append(source.on_preemption)
    await world.turn()
    keys = [declared(world, nodes=1, gpus_per_node=1) for _ in range(5)]
    await world.go_on(3)
    for key in keys:
        await preempted(world, key, RelocationConstraint())
    assert len(source._stops) <= 3
    assert sum(each.event is JobEvent.PREEMPTED for each in sent) == 5
    for key in keys:
        world.slurm.cancel(key.job_id)
    await world.go_on(3)
    assert source._stops == source._nodes_before == {}


async def test_a_job_whose_stop_is_called_off_is_not_moved_by_it(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    key = declared(world)
    await world.go_on(3)
    node = next(iter(world.nodes(key)))
    # given a stop that Slurm has confirmed and not carried out
    row = world.preemptions.begin(job_of(world, key), Cause.OPERATOR, "job 99 waits")
    world.preemptions.orders()
    world.preemptions.stopped(row, None)
    await world.go_on(70)
    assert not world.preemptions.open
    # when Slurm requeues the job much later, and it runs on other nodes
    world.slurm.node_drain(node)
    world.slurm.requeue(key.job_id)
    await world.go_on(8)
    assert node not in world.nodes(key)

    assert words(sent) == [(key.job_id, event) for event in ("started", "preempted", "resumed")]


async def test_a_job_that_only_broken_cycles_have_shown_is_preempted(world: ControllerWorld) -> None:
    sent = listening(world)
    await world.turn()
    last = world.last
    key = declared(world)
    await world.go_on(3)
    job = job_of(world, key)
    sent.clear()
    # given a controller whose last good cycle was before the job
    world.last = last
    row = world.preemptions.begin(job, Cause.OPERATOR, "job 99 waits")
    world.preemptions.orders()
    world.preemptions.stopped(row, None)
    assert words(sent) == []
    await world.turn()
    assert words(sent) == [(key.job_id, "preempted")]


async def test_a_job_that_leads_to_an_error_keeps_no_other_notification(world: ControllerWorld) -> None:
    sent = listening(world)
    made = NotificationSource._start_of

    def broken(self: NotificationSource, job: SlurmJob) -> JobEvent:
        if job.key == bad:
            raise ArithmeticError("a number that is none")
        return made(self, job)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NotificationSource, "_start_of", broken)
        bad, good = world.sbatch(100.0, gpus_per_node=1), world.sbatch(100.0, gpus_per_node=1)
        await world.go_on(5)
    assert words(sent) == [(good.job_id, "started")]
