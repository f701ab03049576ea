"""A job or a family that leads to an error of Headway's own empties no page of metrics, and the page counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from controller.admin.explain.cycle_view import CycleView
from controller.admin.messages import cluster, queue_entries
from controller.admin.metrics import controller_metrics
from controller.admin.metrics.exporter import make_registry
from controller.slurm.model.job import SlurmJob
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in


def broken_for(job_id: str, method: Any) -> Any:
    def broken(self: CycleView, job: SlurmJob, *more: Any) -> Any:
        if job.key.job_id == job_id:
            raise ArithmeticError("a number that is none")
        return method(self, job, *more)

    return broken


async def waiting(folder: Path) -> ControllerWorld:
    world = world_in(folder)
    for _ in range(6):
        world.sbatch(gpus_per_node=8)
    await world.turn()
    return world


@pytest.mark.parametrize("method", ["wait_s", "standing", "contention", "first_submit_s"])
async def test_one_job_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    world = await waiting(tmp_path)
    registry = make_registry(world)
    whole = {family.name for family in registry.collect()}
    monkeypatch.setattr(CycleView, method, broken_for("6", getattr(CycleView, method)))
    families = {family.name: family for family in registry.collect()}
    assert families.keys() == whole
    waits = {sample.labels["job_id"] for sample in families["headway_job_wait_seconds"].samples}
    assert {"5"} <= waits
    assert sum(sample.value for sample in families["headway_jobs"].samples) == 6
    assert world.last is not None
    view = CycleView(world.last, world.ledger, world.settings.partitions)
    assert cluster(view, lambda _: "").jobs_waiting >= 1
    assert sorted(entry.job_id for entry in queue_entries(view, world.clock.now())) == list("123456")


async def test_one_family_hides_no_other_and_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = await waiting(tmp_path)
    registry = make_registry(world)

    def broken(_: object) -> None:
        raise StrangeError

    class StrangeError(Exception):
        """An error of a kind that nothing expects."""

    monkeypatch.setattr(controller_metrics, "read_lease", broken)
    before = registry.get_sample_value("headway_left_out_total", {"part": "/metrics"})
    page = generate_latest(registry).decode()
    assert "headway_lease_age_seconds" not in page
    for name in ("headway_cycles_total", "headway_watchdog", "headway_jobs{", "headway_gpus_total", "headway_job_wait"):
        assert name in page
    assert before is not None
    assert (registry.get_sample_value("headway_left_out_total", {"part": "/metrics"}) or 0) > before
