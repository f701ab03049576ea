"""The program goes on with all its tasks, or ends and comes back, at each await that is cut; nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nodeagent.telemetry.nvml import NvmlReader
from policies.serving.runtime.tasks.supervise import Tasks
from tests.cancellation.__main__ import main
from tests.cancellation.many import RUNS, Tally, cut_all, jobs_of, points_of
from tests.cancellation.points import Cut, Point

SAMPLE = {
    "controller": 8, "refusals": 6, "services": 6, "agent": 4, "watchdog": 4, "watchdog-broken-off": 4, "commands": 4, "pyslurm": 2,
}  # fmt: skip
"""Cuts of each run in an ordinary test: every kind, at places that are spread over the run."""
AT_A_TIME = {"services": 6, "agent": 4}
"""Runs at a time, for those that mostly wait."""


HANDLERS = ("controller/admin/", "controller/agents/server", "controller/agents/profile_requests")
"""Places in what gRPC calls; every other cut of the services is at one of them."""


def cut_some(name: str) -> Tally:
    jobs, rng = jobs_of([name], most=2), random.Random(name)
    in_handlers = [job for job in jobs if job[1].where.startswith(HANDLERS)]
    chosen = rng.sample(in_handlers, SAMPLE[name] // 2) if in_handlers else []
    others = [job for job in jobs if job not in chosen]
    return cut_all(chosen + rng.sample(others, SAMPLE[name] - len(chosen)), AT_A_TIME.get(name, 1))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", RUNS)
def test_some_awaits(name: str) -> None:
    tally = cut_some(name)
    assert tally.violations == []
    assert tally.cut[name] + len(tally.missed) == SAMPLE[name]
    assert tally.cut[name] > len(tally.missed)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", RUNS)
def test_every_await(name: str) -> None:
    tally = cut_all(jobs_of([name], most=3 if name != "controller" else 10**9), os.cpu_count() or 1)
    assert tally.violations == []
    assert tally.cut[name] > 20 * len(tally.missed)


def place_of(name: str, words: str) -> Point:
    return next(point for point in points_of(name, 1) if words in point.where)


def test_a_task_that_dies_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def unsupervised(_: Tasks, name: str, work: Any, **_more: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(work(), name=name)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    point = place_of("controller", "PreemptionManager.run")
    monkeypatch.setattr(Tasks, "running", unsupervised)
    outcome = RUNS["controller"](point, Cut.BUG)
    assert outcome.done
    assert "0 tasks preemptions are alive" in outcome.violations


def test_a_controller_that_ends_with_status_0_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = place_of("controller", "Heartbeat.run")
    monkeypatch.setattr("controller.daemon.daemon.Controller._give_up", lambda self, _error: self.stop())
    outcome = RUNS["controller"](point, Cut.BUG)
    assert "the controller ended with status 0, though nobody stopped it" in outcome.violations


def test_a_child_process_that_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = place_of("agent", "NvmlReader.read")
    monkeypatch.setattr(NvmlReader, "_end", lambda self, _child: setattr(self, "_child", None))
    outcome = RUNS["agent"](point, Cut.BUG)
    assert any("child" in text for text in outcome.violations)


def test_a_hold_that_the_watchdog_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = place_of("watchdog-broken-off", "Watchdog._hold_again")
    monkeypatch.setattr("controller.daemon.watchdog.watchdog.is_held_by_user", lambda _job, _holds: False)
    outcome = RUNS["watchdog-broken-off"](point, Cut.ENDED)
    assert outcome.done
    assert any("the hold of job 7 by its user is lost" in text for text in outcome.violations)


def test_a_verb_that_is_not_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    point = place_of("commands", "CommandLineClient.facts")
    monkeypatch.setattr("controller.slurm.updates.changes.release_step", lambda _found: None)
    outcome = RUNS["commands"](point, Cut.BUG)
    assert any("release succeeded, and is not carried out" in text for text in outcome.violations)


def test_the_command_lists_the_awaits_that_it_cut(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--run", "controller", "--cut", "BUG", "--most", "0", "--processes", "1"]) == 0
    assert "0 violations" in capsys.readouterr().out
