"""The regular work on the store goes on after an error of the disk."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.agents.reports import storage
from controller.agents.reports.report_screen import ReportScreen
from controller.agents.reports.storage import ReportStorage
from controller.profiles import intake
from controller.profiles.sightings import Arrival
from controller.profiles.store import ProfileStore, ProfileStoreError
from tests.unit.controller.examples.reports import Agents, Training


class BrokenOnce:
    """A store whose disk fails at the first calculation of windows."""

    def __init__(self) -> None:
        self.calculated = 0
        self.settings = SimpleNamespace(window_s=0.001)
        self.calculated_again = threading.Event()
        self.pruned = threading.Event()

    def compute_windows(self, now_s: float) -> int:
        """Calculate nothing."""
        self.calculated += 1
        if self.calculated == 1:
            raise sqlite3.OperationalError("disk I/O error")
        self.calculated_again.set()
        return int(now_s > 0)

    def prune(self, now_s: float) -> None:
        """Drop nothing."""


async def calculates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a storage calculate until it has done so without an error."""
    store = BrokenOnce()
    await _runs_until(store, store.calculated_again, monkeypatch)


async def _runs_until(broken: BrokenOnce, event: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "_COMPUTE_EVERY_S", 0.001)
    store: Any = broken
    reports = ReportStorage(store, ReportScreen())
    task = asyncio.ensure_future(reports.compute_windows_regularly(lambda _now_s: broken.pruned.set()))
    try:
        done = asyncio.ensure_future(asyncio.to_thread(event.wait, 30))
        await asyncio.wait({task, done}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert event.is_set()
        done.cancel()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, sqlite3.Error):
            await task
        await reports.close()


async def test_an_error_of_the_disk_ends_one_calculation_of_windows_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await calculates_again(monkeypatch)


class FullDisk(BrokenOnce):
    """A store that can calculate nothing any more."""

    def compute_windows(self, now_s: float) -> int:
        """Fail."""
        raise sqlite3.OperationalError("database or disk is full")


async def test_old_rows_are_dropped_also_while_no_window_can_be_calculated(monkeypatch: pytest.MonkeyPatch) -> None:
    store = FullDisk()
    await _runs_until(store, store.pruned, monkeypatch)


async def test_reports_beyond_the_limits_are_counted_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FROM_OUTBOX", 3)
    monkeypatch.setattr(intake, "JOBS_OF_A_NODE", 0)
    agents, training, stored = Agents(), Training(1, ("n1",), 6.0), asyncio.Queue[bool]()
    with closing(ProfileStore(tmp_path / "profiles.sqlite")) as store:
        screen = ReportScreen()
        reports = ReportStorage(store, screen)
        task = asyncio.ensure_future(reports.store_reports())
        try:
            for number in range(8):
                await reports.put(agents.arrival("n1", training.report("n1", 100.0 + number)), stored.put_nowait)
            async with asyncio.timeout(60):
                assert [await stored.get() for _ in range(8)] == [True] * 8  # so none is sent again
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await reports.close()
    assert screen.counted == {"limit": 5}


class FullForAWhile:
    """A store that can write nothing for some attempts."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems

    def take(self, arrivals: list[Arrival]) -> list[bool]:
        """Fail, or store nothing."""
        if self._problems:
            raise ProfileStoreError(self._problems.pop(0))
        return [True] * len(arrivals)

    def left_out(self) -> dict[str, int]:
        """Return nothing: no report was too much."""
        return {}


async def test_a_problem_of_the_store_is_logged_when_it_changes_and_when_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "_STORE_AGAIN_S", 0.001)
    agents, training, stored = Agents(), Training(1, ("n1",), 6.0), asyncio.Queue[bool]()
    store: Any = FullForAWhile(["disk is full"] * 4 + ["read-only file system"] * 4)
    reports = ReportStorage(store, ReportScreen())
    with capture_logs() as logs:
        task = asyncio.ensure_future(reports.store_reports())
        try:
            for number in range(2):
                await reports.put(agents.arrival("n1", training.report("n1", 100.0 + number)), stored.put_nowait)
                async with asyncio.timeout(60):
                    assert await stored.get()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await reports.close()
    told = [(each["event"], each.get("problem")) for each in logs if each["event"].startswith("reports_")]
    assert told == [
        ("reports_not_stored", "disk is full"),
        ("reports_not_stored", "read-only file system"),
        ("reports_stored_again", None),
    ]
