"""Metrics of single jobs: wait and reason, estimate, slowdown; how many, and where jobs are private."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from controller.admin.metrics.exporter import make_registry
from tests.unit.controller.examples.slowed import known, pace
from tests.unit.controller.forecast.test_service import forecasts_in, waiting_world
from tests.unit.controller.worlds.controller_world import ControllerWorld

FOR_GPUS = "for GPUs, in the policy's order"
PER_JOB = ("headway_job_wait_seconds", "headway_job_start_forecast_timestamp_seconds", "headway_job_slowdown_ratio")


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hw-") as found:
        yield Path(found)


def series(registry: CollectorRegistry) -> dict[tuple[Any, ...], float]:
    """Name, job and other labels to value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
        if "job_id" in sample.labels
    }


async def full_world(folder: Path) -> tuple[ControllerWorld, CollectorRegistry]:
    """One job runs on the whole cluster and is slowed down, others wait, and one of them has an estimate."""
    world, _ = await waiting_world(folder)
    world.slurm_says(PrivateData="none")
    _, forecasts = forecasts_in(world)
    registry = make_registry(world, forecasts=forecasts)
    await world.go_on(10)
    world.sbatch(60.0, gpus_per_node=1, hold=True)
    world.know(known(pace(1, 1.5, 2)))
    await world.turn()
    await forecasts.make(world.last, "fifo")
    return world, registry


async def test_waiting_jobs_have_wait_reason_and_estimate_and_slowed_ones_their_slowdown(folder: Path) -> None:
    world, registry = await full_world(folder)
    made_s = world.clock.now()

    found = series(registry)

    assert found.pop(("headway_job_wait_seconds", "2", "dl", FOR_GPUS)) == pytest.approx(11.0, abs=1.0)
    assert found.pop(("headway_job_wait_seconds", "3", "dl", "held by its user")) == pytest.approx(1.0, abs=1.0)
    assert found == {
        ("headway_job_start_forecast_timestamp_seconds", "2", "earliest"): made_s + 60,
        ("headway_job_start_forecast_timestamp_seconds", "2", "median"): made_s + 120,
        ("headway_job_start_forecast_timestamp_seconds", "2", "latest"): made_s + 300,
        ("headway_job_slowdown_ratio", "1", "dl"): 1.5,
    }
    assert registry.get_sample_value("headway_jobs_without_series") == 0


async def test_the_number_of_jobs_with_series_is_bounded_by_the_longest_waits(folder: Path) -> None:
    world, registry = await full_world(folder)
    for _ in range(5):
        world.sbatch(60.0, gpus_per_node=1)
    await world.go_on(3)
    # a held job waits longer than those that came after it, and is still the last to have a series
    world.settings = world.settings.model_copy(update={"metrics_jobs": 3})
    assert sorted(job for name, job, *_ in series(registry) if name == PER_JOB[0]) == ["2", "4", "5"]
    assert registry.get_sample_value("headway_jobs_without_series") == 4
    world.settings = world.settings.model_copy(update={"metrics_jobs": 0})
    assert series(registry) == {}
    assert registry.get_sample_value("headway_jobs_without_series") == 8


async def test_the_partitions_of_a_job_have_one_order(folder: Path) -> None:
    world, registry = await full_world(folder)
    assert world.last is not None
    for job in world.last.observation.snapshot.jobs:
        object.__setattr__(job, "partition", {"1": "dl", "2": "ml,dl"}.get(job.key.job_id, "dl,ml"))
    found = {(name, job): partition for name, job, partition, *_ in series(registry) if name == PER_JOB[0]}
    assert found == {(PER_JOB[0], "2"): "dl,ml", (PER_JOB[0], "3"): "dl,ml"}


@pytest.mark.parametrize("private", ["jobs", "accounts,jobs", "all"])
async def test_where_jobs_are_private_no_job_has_series(folder: Path, private: str) -> None:
    world, registry = await full_world(folder)
    world.slurm_says(PrivateData=private)
    assert series(registry) == {}
    # not 0, which says that every job has series
    assert registry.get_sample_value("headway_jobs_without_series") is None


async def test_nor_where_a_group_alone_may_see_jobs_or_slurm_has_not_answered_yet(folder: Path) -> None:
    world, registry = await full_world(folder)
    world.settings = world.settings.model_copy(update={"admin_group": "ops"})
    assert series(registry) == {}
    world.settings = world.settings.model_copy(update={"admin_group": ""})
    world.facts = None
    assert series(registry) == {}
