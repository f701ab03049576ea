"""Months of a cluster: no promise is broken, and nothing grows."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from controller.agents import node_table as growth_of
from controller.agents.node_table import NodeTable
from controller.base.clock import VirtualClock
from controller.base.config import ControllerSettings
from controller.base.events import KEPT, EventLog
from controller.profiles.store import ProfileStore
from controller.slurm.embedded.ctld.job import Job
from protos.headway.v1 import agent_pb2
from tests.campaign.ageing import _SETTINGS, BOUNDS, DAY_S, EVENTS_KEPT, live
from tests.campaign.growth import Day, levels_off, process_sizes
from tests.campaign.play import captured_errors, clear, play, quiet
from tests.campaign.plot.story import Step, Story
from tests.campaign.verdict.model import Model
from tests.campaign.world.services import Agents, AgentsService
from tests.campaign.world.virtual_loop import LoopClock, VirtualLoop


@pytest.mark.timeout(600)
def test_some_days_of_a_cluster() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))  # other tests of the same process may have left some
    days, violations = live(days=2, seed=3, jobs_a_day=30)
    assert list(map(str, violations)) == []
    assert all(day.jobs > 20 and day.descriptors < before + 50 for day in days)
    assert days[1].reports > days[0].reports > 100
    assert (days[1].threads, days[1].children) <= (days[0].threads, days[0].children), "none is left behind by a day"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_sixty_days_of_a_cluster() -> None:
    days, violations = live(days=60, seed=1)
    assert list(map(str, violations)) == []
    assert levels_off(days, BOUNDS) == []


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


def days_of_events(days: int, kept: int, *, leaks: bool) -> list[Day]:
    """Return the records of days with 300 jobs and three events each, in a process with thirty thousand objects.

    `kept`: events that the log keeps. `leaks`: of each job an object is left for ever.
    """
    gc.collect()  # what earlier tests have left would go at some time within these days
    log, left, found = EventLog(VirtualClock(), kept=kept), [], []
    others = len(gc.get_objects()) - 30_000
    for number in range(1, days + 1):
        for job in range(300 * number, 300 * (number + 1)):
            for kind in ("placed", "started", "ended"):
                log.add(kind, str(job), f"job {job} {kind}")
            if leaks:
                left.append([job])
        tables = {"EventLog._recent": len(log.recent())}
        found.append(replace(A_DAY, number=number, objects=len(gc.get_objects()) - others, tables=tables))
    return found


def test_a_leak_of_an_object_for_each_job_is_found_beside_a_log_that_fills() -> None:
    sound, leaking = (days_of_events(40, EVENTS_KEPT, leaks=leaks) for leaks in (False, True))
    assert levels_off(sound, BOUNDS) == []
    (found,) = levels_off(leaking, BOUNDS)
    assert found.startswith("objects grew from")


def test_days_on_which_a_log_still_fills_are_not_compared() -> None:
    days = days_of_events(40, KEPT, leaks=False)
    assert any(found.startswith("objects grew from") for found in levels_off(days[:30])), "the log alone"
    assert levels_off(days, {"EventLog._recent": KEPT}) == []
    (found,) = levels_off(days[:25], {"EventLog._recent": KEPT})
    assert found == "3 days since EventLog._recent is full: too few to see what grows"


def test_days_before_the_last_restart_are_not_compared() -> None:
    sizes = {number: 100 if number != 6 else 3 for number in range(1, 13)}
    days = [
        replace(A_DAY, number=number, objects=5000 if number < 7 else 1000, tables={"log": size})
        for number, size in sizes.items()
    ]
    assert levels_off(days, {"log": 100}) == []
    assert levels_off(days[:9], {"log": 100}) == ["3 days since log is full: too few to see what grows"]


def test_the_policy_of_the_months_may_stop_a_job_as_often_as_on_a_cluster() -> None:
    """With a story's settings it stops long jobs every ten seconds."""
    usual = ControllerSettings(partitions=("dl",))
    for name in ("preemption_min_run_s", "preemption_cooldown_s"):
        assert _SETTINGS[name] == getattr(usual, name)


def test_resumed_runs_are_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of 300 s that saves after 100 s runs 200 s more."""
    account, seen = Model.account, []

    def note(model: Model, what: str, job: Job, *others: Any) -> None:
        seen.append((what, model.time_s))
        account(model, what, job, *others)

    monkeypatch.setattr(Model, "account", note)
    job = {"label": 0, "duration_s": 300.0, "trains": True}
    story = Story(1, 2, 2, "fifo-skip", True, (Step(0.0, "submit", job), Step(100.0, "preempt", {"pick": 0})))
    assert list(map(str, play(story).violations)) == []
    assert [what for what, _ in seen] == ["START", "REQUEUED", "START", "COMPLETED"]
    first, second = (after - before for (_, before), (_, after) in (seen[:2], seen[2:]))
    assert 90 < first < 130
    assert 300 <= first + second < 330


def test_an_error_of_the_world_itself_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise only its later effects would show, such as a job that never starts."""

    def fail(*_: object) -> None:
        raise TypeError("oh")

    monkeypatch.setattr(Model, "account", fail)
    job = {"label": 0, "duration_s": 30.0, "trains": True}
    story = Story(1, 2, 2, "fifo-skip", True, (Step(0.0, "submit", job),))
    assert any("the world itself failed" in str(each) and "oh" in str(each) for each in play(story).violations)


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


def test_caches_with_a_bound_do_not_count_and_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded, unbounded = lru_cache(maxsize=100_000)(str), lru_cache(maxsize=None)(repr)
    monkeypatch.setattr(growth_of, "bounded", bounded, raising=False)
    monkeypatch.setattr(growth_of, "unbounded", unbounded, raising=False)
    for number in range(1000):
        bounded(number), unbounded(number)
    before = sys.getallocatedblocks()
    process_sizes()
    assert (bounded.cache_info().currsize, unbounded.cache_info().currsize) == (0, 1000)
    assert sys.getallocatedblocks() < before - 1000


def test_a_cache_of_a_class_is_emptied_too(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = staticmethod(lru_cache(maxsize=10)(str))
    monkeypatch.setattr(NodeTable, "cached", cached, raising=False)
    NodeTable.cached(1)  # type: ignore[attr-defined]
    process_sizes()
    assert NodeTable.cached.cache_info().currsize == 0  # type: ignore[attr-defined]
