"""Waits of jobs in the metrics: which jobs count, once, by size, and the longest wait of those that wait still."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from controller.admin.metrics.exporter import make_registry
from controller.admin.metrics.wait_metrics import size_of
from controller.notify.message import Notification
from controller.notify.source import NotificationSource
from controller.slurm.embedded import ClusterDescription, PartitionDescription
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in


@pytest.fixture
def world() -> Iterator[ControllerWorld]:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        found = world_in(Path(folder))
        found.endpoint.away = True
        yield found


def waits(registry: CollectorRegistry) -> dict[str, tuple[float, float]]:
    """Number of the waits and their sum, by size, of the sizes that have any."""
    found = {}
    for gpus in ("1", "2", "4", "8", "16", "32", "64", "128", "more"):
        count = registry.get_sample_value("headway_wait_seconds_count", {"gpus": gpus})
        total = registry.get_sample_value("headway_wait_seconds_sum", {"gpus": gpus})
        assert count is not None and total is not None
        if count:
            found[gpus] = (count, total)
    return found


async def test_the_wait_of_a_job_counts_once_when_it_starts(world: ControllerWorld) -> None:
    # given a full cluster, and a job that waits for it
    registry = make_registry(world)
    world.sbatch(60, gpus_per_node=8, nodes=4)
    await world.go_on(5)
    world.sbatch(600, gpus_per_node=5)
    await world.go_on(40)
    assert waits(registry).keys() == {"32"}
    longest = registry.get_sample_value("headway_longest_wait_seconds")
    assert longest is not None and 30 <= longest <= 45
    # when the nodes are free
    await world.go_on(60)
    # then it counts, with its whole wait
    found = waits(registry)
    assert found["8"][0] == 1
    assert 45 <= found["8"][1] <= 75
    assert registry.get_sample_value("headway_longest_wait_seconds") == 0


async def test_a_job_that_runs_between_two_cycles_counts(world: ControllerWorld) -> None:
    registry = make_registry(world)
    await world.turn()
    world.sbatch(3.0, gpus_per_node=8)
    await world.turn()
    await world.clock.advance(30.0)
    await world.turn()
    assert waits(registry)["8"][0] == 1


async def test_a_job_that_had_started_before_the_controller_does_not_count_again(world: ControllerWorld) -> None:
    make_registry(world)
    world.sbatch(600, gpus_per_node=1)
    await world.go_on(5)
    # when the controller starts again
    world.restart()
    await world.clock.advance(10.0)
    world.health.started_s = world.clock.now()
    world.listeners.clear()
    registry = make_registry(world)
    await world.go_on(5)
    # then only what starts from now on counts
    assert waits(registry) == {}
    world.sbatch(600, gpus_per_node=2)
    await world.go_on(5)
    assert waits(registry).keys() == {"2"}


async def test_a_job_that_ran_when_a_reload_added_its_partition_does_not_count() -> None:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        partitions = tuple(PartitionDescription(name=name) for name in ("dl", "lab"))
        world = world_in(Path(folder), description=ClusterDescription(partitions=partitions))
        world.endpoint.away = True
        registry, sent = make_registry(world), list[Notification]()
        world.listeners.append(NotificationSource(world, sent.append).on_cycle)
        await world.turn()
        # given a job of another partition, which runs
        other = world.sbatch(600, gpus_per_node=1, partition="lab")
        await world.go_on(5)
        assert world.phase(other).occupies_nodes
        # when the settings get this partition
        world.settings = world.settings.model_copy(update={"partitions": ("dl", "lab")})
        await world.go_on(5)
        # then it counts as no start, and the next job of this partition does
        assert (waits(registry), sent) == ({}, [])
        later = world.sbatch(600, gpus_per_node=2, partition="lab")
        await world.go_on(5)
        assert waits(registry).keys() == {"2"}
        assert [each.job.key for each in sent] == [later]


async def test_a_second_start_is_no_second_wait(world: ControllerWorld) -> None:
    registry = make_registry(world)
    key = world.sbatch(600, gpus_per_node=1)
    await world.go_on(5)
    await world.slurm.client.requeue_hold([key])
    await world.go_on(20)
    (found,) = (job for job in (await world.slurm.client.snapshot()).jobs if job.key.job_id == key.job_id)
    assert (found.restarts, found.phase.occupies_nodes) == (1, True)
    assert waits(registry)["1"][0] == 1


@pytest.mark.parametrize(("gpus", "label"), [(1, "1"), (2, "2"), (3, "4"), (128, "128"), (129, "more")])
def test_labels_of_sizes(gpus: int, label: str) -> None:
    assert size_of(gpus) == label
