"""Runs the forecasting process once for each request."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Protocol

from controller.base.errors import HeadwayError
from controller.base.text import clip
from controller.forecast.request import Answer, decode_answer

MODULE = "controller.forecast.child"
WITHIN_S = 240.0
"""Time after which the process is killed; it may wait long for a processor, because it yields to everything."""


class ForecastError(HeadwayError):
    """The forecasting process gave no answer. Estimates become older until one does."""


class Forecaster(Protocol):
    """Answers requests."""

    async def answer(self, request: bytes) -> Answer:
        """Return the answer to an encoded request. Raises ForecastError."""


class ForecastProcess:
    """A process for each request: none of its memory or time is the controller's. Invariant: none is left when a call returns."""

    def __init__(self, argv: Sequence[str] = (sys.executable, "-P", "-m", MODULE), within_s: float = WITHIN_S) -> None:
        self._argv = tuple(argv)
        self._within_s = within_s

    async def answer(self, request: bytes) -> Answer:
        """Return the answer to an encoded request. Raises ForecastError."""
        child = self._start()
        try:
            output, problem = await asyncio.to_thread(child.communicate, request, self._within_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()  # ends at once, and closes the pipes
            raise ForecastError(f"the forecasting process gave no answer within {self._within_s:g} s") from None
        finally:
            if child.poll() is None:  # the controller ends; the thread's call returns with the process
                child.kill()
                child.wait()
        if child.returncode != 0:
            raise ForecastError(f"the forecasting process ended with status {child.returncode}: {clip(problem[-400:])}")
        try:
            return decode_answer(output)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise ForecastError(f"the forecasting process gave an answer that cannot be read: {error}") from error

    def _start(self) -> subprocess.Popen[bytes]:
        # Its messages to systemd would be taken for the controller's.
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        try:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environment, **threads},
                start_new_session=True,
            )
        except OSError as error:
            raise ForecastError(f"the forecasting process cannot be started: {error}") from error
