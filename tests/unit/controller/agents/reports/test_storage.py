"""The regular work on the store goes on after an error of the disk."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from controller.agents.reports import storage
from controller.agents.reports.report_screen import ReportScreen
from controller.agents.reports.storage import ReportStorage


class BrokenOnce:
    """A store whose disk fails at the first calculation of windows."""

    def __init__(self) -> None:
        self.calculated = 0
        self.settings = SimpleNamespace(window_s=0.001)
        self.pruned = asyncio.Event()

    def compute_windows(self, now_s: float) -> int:
        """Calculate nothing."""
        self.calculated += 1
        if self.calculated == 1:
            raise sqlite3.OperationalError("disk I/O error")
        return int(now_s > 0)

    def prune(self, now_s: float) -> None:
        """Drop nothing."""


async def calculates_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a storage calculate until old rows are dropped, which it does after a calculation without an error."""
    monkeypatch.setattr(storage, "_COMPUTE_EVERY_S", 0.001)
    store: Any = BrokenOnce()
    reports = ReportStorage(store, ReportScreen())
    task = asyncio.ensure_future(reports.compute_windows_regularly(lambda _now_s: store.pruned.set()))
    try:
        done = asyncio.ensure_future(store.pruned.wait())
        await asyncio.wait({task, done}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        assert store.pruned.is_set()
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
