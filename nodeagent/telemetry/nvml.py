"""Reads the GPUs in a child process, under a deadline: the agent never waits for the driver.

Invariant: there is at most one child. A child that hangs, dies or writes nonsense is killed, and another is started after a pause
that grows; while a killed child is still inside the driver, where no signal reaches it, no other is started.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from nodeagent.telemetry.nvml_rows import parse_gpus, parse_greeting
from nodeagent.wire.report import GpuReading
from policies.serving.runtime.tasks.backoff import Backoff, Retries

log = structlog.get_logger(__name__)

CHILD = (sys.executable, "-P", "-m", "nodeagent.telemetry.nvml_worker")
_LINE_LIMIT = 4 * 1024 * 1024
_START_DEADLINE_S = 30.0
"""nvmlInit takes seconds on nodes with many GPUs and no persistence daemon."""
_LEAST_SHARE = 0.5
"""A child is asked, and killed for no answer, only if at least this share of a reading's deadline is left for the answer."""
_PAUSES = Backoff(first_s=1.0, longest_s=60.0)
_ABSENT_PAUSE_S = 600.0
"""A driver may be loaded after the start of the agent."""
_CLOSE_WITHIN_S = 2.0


class GpuReader(Protocol):
    """Reads the GPUs of this node."""

    @property
    def absent(self) -> str:
        """The reason why no GPUs can be read; empty = they can, or this is not known yet."""
        ...

    async def read(self) -> tuple[GpuReading, ...] | None:
        """Return a row for each GPU; None = no reading now. Never raises, and never takes longer than its deadline."""
        ...

    async def close(self) -> None:
        """End the processes that the reader has started."""
        ...


class NoGpus:
    """The reader for `gpus = "off"`."""

    absent = "switched off"

    async def read(self) -> tuple[GpuReading, ...] | None:
        """Return None."""
        return None

    async def close(self) -> None:
        """Do nothing."""


class NvmlReader:
    """Reads GPUs through NVML in a child process that can be killed."""

    def __init__(
        self,
        deadline_s: float = 2.0,
        child: Sequence[str] = CHILD,
        *,
        clock: Callable[[], float] = time.monotonic,
        start_deadline_s: float = _START_DEADLINE_S,
    ) -> None:
        self.absent = ""
        self._deadline_s = deadline_s
        self._start_deadline_s = start_deadline_s
        self._argv = tuple(child)
        self._clock = clock
        self._child: Process | None = None
        """The child, once it has reported that it is ready."""
        self._starting: asyncio.Task[None] | None = None
        self._killed: Process | None = None
        """The child that was killed last."""
        self._ending: asyncio.Task[int] | None = None
        """Waits for its end."""
        self._not_before_s = 0.0
        self._retries = Retries(_PAUSES)

    @property
    def failures(self) -> int:
        """Number of children in a row that died or were killed."""
        return self._retries.failures

    async def read(self) -> tuple[GpuReading, ...] | None:
        """Return a row for each GPU, or None, within the deadline."""
        begun_s = self._clock()
        child = await self._ready_child()
        if child is None:
            return None
        answer_within_s = self._deadline_s - (self._clock() - begun_s)
        if answer_within_s < _LEAST_SHARE * self._deadline_s:
            return None  # its start took the time of this reading, which is no fault of the child: the next reading asks it
        try:
            async with asyncio.timeout(answer_within_s):
                assert child.stdin is not None and child.stdout is not None, "both are pipes"
                child.stdin.write(b"read\n")
                gpus = parse_gpus(await child.stdout.readline())
        except TimeoutError:
            self._fail(child, f"no answer within {answer_within_s:.3g} s")
        except asyncio.CancelledError:
            self._end(child)  # its answer, when it comes, must not be taken for the answer to the next request
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, its answer must not be taken for the next one
            self._fail(child, str(error) or type(error).__name__)
        else:
            self._retries.reset()
            return gpus
        return None

    async def close(self) -> None:
        """Kill the child. One that is inside the driver ends later, by itself."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._child is not None:
            self._end(self._child)
        if self._ending is not None:
            await asyncio.wait({self._ending}, timeout=_CLOSE_WITHIN_S)
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)

    async def _ready_child(self) -> Process | None:
        """Return the child, started if its pause is over; None while it is not ready."""
        if self._child is not None:
            return self._child
        if self._is_ending():
            return None
        if self._starting is None:
            if self._clock() < self._not_before_s:
                return None
            self._starting = asyncio.create_task(self._start(), name="gpu-child")
        await asyncio.wait({self._starting}, timeout=self._deadline_s)
        if self._starting.done():
            if self._starting.cancelled():  # not by `close`, which waits for the start
                self._try_later("its start was cancelled")
            self._starting = None
        return self._child

    async def _start(self) -> None:
        try:
            child = await asyncio.create_subprocess_exec(*self._argv, stdin=PIPE, stdout=PIPE, limit=_LINE_LIMIT)
        except Exception as error:  # noqa: BLE001 - a bug costs a reading, and must not be lost with the task
            self._try_later(f"cannot be started: {error}")
            return
        try:
            async with asyncio.timeout(self._start_deadline_s):
                assert child.stdout is not None, "a pipe"
                absent = parse_greeting(await child.stdout.readline())
        except TimeoutError:
            self._fail(child, f"not ready within {self._start_deadline_s:g} s")
        except asyncio.CancelledError:
            self._end(child)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the child must not be left running
            self._fail(child, str(error) or type(error).__name__)
        else:
            self._greeted(child, absent)

    def _greeted(self, child: Process, absent: str | None) -> None:
        if absent is None:
            self.absent = ""
            self._child = child
            return
        if not self.absent:  # once
            log.info("no_gpus", reason=absent)
        self.absent = absent or "no reason given"
        self._not_before_s = self._clock() + _ABSENT_PAUSE_S
        self._end(child)

    def _fail(self, child: Process, problem: str) -> None:
        self._end(child)
        self._try_later(problem)

    def _try_later(self, problem: str) -> None:
        pause_s = self._retries.next_s()
        self._not_before_s = self._clock() + pause_s
        log.warning("gpu_child_failed", problem=problem, failures=self.failures, again_in_s=pause_s)

    def _end(self, child: Process) -> None:
        self._child = None
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
        self._killed = child
        self._ending = asyncio.create_task(child.wait(), name="gpu-child-end")

    def _is_ending(self) -> bool:
        """Return whether the killed child may be there still. A wait for its end that failed is logged, and begun again."""
        if self._ending is None or self._killed is None:
            return False
        if not self._ending.done():
            return True
        problem = "cancelled" if self._ending.cancelled() else self._ending.exception()
        if problem is None:
            return False
        log.warning("gpu_child_not_awaited", problem=str(problem), pid=self._killed.pid)
        self._end(self._killed)
        return True
