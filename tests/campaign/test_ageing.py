"""Months of a cluster: no promise is broken, and nothing grows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.agents.node_table import NodeTable
from controller.profiles.store import ProfileStore
from protos.headway.v1 import agent_pb2
from tests.campaign.ageing import DAY_S, live
from tests.campaign.growth import Day, levels_off, process_sizes
from tests.campaign.play import captured_errors, clear, quiet
from tests.campaign.world.services import Agents, AgentsService
from tests.campaign.world.virtual_loop import LoopClock, VirtualLoop


@pytest.mark.timeout(600)
def test_some_days_of_a_cluster() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))  # other tests of the same process may have left some
    days, violations = live(days=2, seed=3, jobs_a_day=30)
    assert list(map(str, violations)) == []
    assert all(day.jobs > 20 and day.descriptors < before + 50 for day in days)
    assert days[1].reports > days[0].reports > 100


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sixty_days_of_a_cluster() -> None:
    days, violations = live(days=60, seed=1)
    assert list(map(str, violations)) == []
    assert levels_off(days) == []


A_DAY = Day(0, 0, 0, 0, 1000, 1000, 10.0, 1, 0, 100, 0, 5, 0)


@pytest.mark.parametrize("name", ["objects", "blocks", "rss_mib", "threads", "children", "files_kib", "descriptors"])
def test_what_grows_is_named(name: str) -> None:
    days: list[Day] = []
    for number in range(1, 21):
        sizes: dict[str, Any] = {name: getattr(A_DAY, name) * (1 + number / 20) + number}
        days.append(replace(A_DAY, number=number, **sizes))
    (found,) = levels_off(days)
    assert found.startswith(f"{name} grew from")
    assert levels_off([replace(A_DAY, number=number) for number in range(1, 21)]) == []


@pytest.mark.parametrize("grow", ["ids", pytest.param("numbers", marks=pytest.mark.slow)])
def test_growing_tables_without_objects_of_their_own_are_named(grow: str) -> None:
    ids: set[str] = set()
    numbers: dict[int, float] = {}
    days, before = [], sys.getallocatedblocks()
    for number in range(1, 9):
        for new in range(number * 5000, (number + 1) * 5000):
            if grow == "ids":
                ids.add(f"{new}_1")
            else:
                numbers[new] = new / 7
        sizes = process_sizes(before)
        days.append(replace(A_DAY, number=number, objects=sizes["objects"], blocks=sizes["blocks"]))
    (found,) = levels_off(days)
    assert found.startswith("blocks grew from")


def test_threads_and_child_processes_are_counted() -> None:
    before = process_sizes()
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            thread.start()
            assert process_sizes()["children"] == before["children"] + 1
            assert process_sizes()["threads"] == before["threads"] + 1
        finally:
            child.kill()
            ended.set()
            thread.join()


class Unforgetting(NodeTable):
    """Keeps the nodes whose agents have left."""

    def forget(self, now_s: float) -> None:
        """Forget none."""


class Unpruned(ProfileStore):
    """Keeps every row."""

    def prune(self, now_s: float) -> None:
        """Delete nothing."""


def days_of_reports(folder: Path, **parts: Any) -> list[Day]:
    """Return the records of six days of the agents' service alone: four agents that stay, a new one each hour, a job each day."""
    loop = VirtualLoop()
    with captured_errors() as errors, quiet():
        try:
            asyncio.set_event_loop(loop)
            days = loop.run_until_complete(_days_of_reports(folder, LoopClock(loop), **parts))
        finally:
            clear(loop)
            asyncio.set_event_loop(None)
            loop.close()
    assert errors == []
    return days


async def _days_of_reports(
    folder: Path, clock: LoopClock, table: Callable[[LoopClock], NodeTable], **parts: Any
) -> list[Day]:
    agents, path = Agents(clock), folder / "profiles.db"
    service = AgentsService(path, clock, keep_days=1.0, table=table(clock), **parts)
    nodes = [f"n{number}" for number in range(1, 5)]
    for node in nodes:
        await service.enter(node, agents.start(node))
    work = [asyncio.ensure_future(run()) for run in (*service.tasks().values(), lambda: agents.visit(service))]
    days = []
    for number in range(1, 7):
        for minutes in range(0, 24 * 60, 5):
            for node in nodes if minutes % 60 < 25 else ():
                await service.put(node, agents.run_id(node), agents.numbered(node, _report(number, minutes, clock)))
            await asyncio.sleep(300.0)
        sizes = process_sizes()
        days.append(replace(A_DAY, number=number, files_kib=path.stat().st_size // 1024, tables=sizes["tables"]))
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    service.store.close()
    assert clock.monotonic() >= 6 * DAY_S
    return days


def _report(job_id: int, steps: int, clock: LoopClock) -> agent_pb2.AgentReport:
    now_ns = int((1000 + clock.monotonic()) * 1e9)
    name = agent_pb2.JobName(job_id=job_id, uid=1000)
    job = agent_pb2.JobReport(job=name, ranks=[0], world_size=1, steps=steps + 1, monotonic_ns=now_ns)
    job.first_step_ns = now_ns - steps * 10**9
    return agent_pb2.AgentReport(time_s=clock.now(), job=job)


def test_the_reports_of_agents_fill_neither_memory_nor_disk(tmp_path: Path) -> None:
    assert levels_off(days_of_reports(tmp_path, table=lambda clock: NodeTable(100, clock.now))) == []


def test_leaks_in_what_takes_the_reports_of_agents_are_named(tmp_path: Path) -> None:
    days = days_of_reports(tmp_path, table=lambda clock: Unforgetting(100, clock.now), store=Unpruned)
    assert [found.partition(" grew")[0] for found in levels_off(days)] == [
        "files_kib",
        "NodeTable._nodes",
        "ProfileStore._gpu_models",
    ]
