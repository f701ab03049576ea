"""Emulated training jobs that really compute and copy, as processes of this machine.

A step is what a training does on the host of its GPUs: it prepares a batch on one core, copies it, and waits for the GPU, which
here is a sleep. So jobs slow each other down by the cores and by the bandwidth of memory. The latter is in the place of PCIe, which
a machine without GPUs does not have.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

_UNIT = 20_000
"""Numbers of one unit of preparing."""
_MIB = 1 << 20
_KEPT = 1024
"""Last steps of a job that a reader finds: seconds of steps, however long the reader itself waits for a core."""


@dataclass(frozen=True, slots=True)
class JobKind:
    """The step of a job."""

    units: int
    """Units of preparing."""
    copied_mib: int
    gpu_s: float
    """Seconds that the GPU computes."""


KINDS: Mapping[str, JobKind] = {
    "reader": JobKind(40, 0, 0.004),
    "decoder": JobKind(120, 4, 0.004),
    "mover": JobKind(10, 64, 0.004),
    "balanced": JobKind(40, 32, 0.010),
    "light": JobKind(10, 4, 0.020),
    "heavy": JobKind(200, 64, 0.002),
}
"""Kinds of jobs by name: much preparing or much copying, beside short and long computing on the GPU."""


class SoFar(NamedTuple):
    """A job's steps so far, as the job itself recorded them at the end of the last one."""

    steps: int
    ended_s: float
    """End of the last step, in seconds of `time.perf_counter`; 0 before the first."""
    cpu_s: float
    """CPU seconds of the process up to then; 0 before the first step."""


def train(kind: JobKind, steps: Any, ended_s: Any, cpu_s: Any) -> None:
    """Make steps for ever.

    `steps` is a shared value, their number so far; `ended_s` and `cpu_s` are shared arrays of `_KEPT` values, in which the i-th
    step, counted from 1, has place i modulo their length.
    """
    numbers, result = np.linspace(0.0, 1.0, _UNIT), np.empty(_UNIT)
    batch = np.ones(kind.copied_mib * _MIB // 2, dtype=np.uint8)
    there = np.empty_like(batch)
    while True:
        for _ in range(kind.units):
            np.multiply(numbers, numbers, out=result)
        # Written twice: to the pinned buffer of the host, and to the GPU.
        np.copyto(there, batch)
        np.copyto(batch, there)
        time.sleep(kind.gpu_s)
        at = (steps.value + 1) % _KEPT
        ended_s[at], cpu_s[at] = time.perf_counter(), time.process_time()
        # Counted last: a reader that sees the number finds the record, without a lock that a paused job could hold.
        steps.value += 1


class EmulatedJob:
    """A job in a process of its own. Invariant: after `close` the process has ended."""

    def __init__(self, kind: JobKind) -> None:
        context = multiprocessing.get_context("fork")
        self._steps = context.Value("q", 0, lock=False)
        self._ended_s, self._cpu_s = (context.Array("d", _KEPT, lock=False) for _ in range(2))
        arguments = (kind, self._steps, self._ended_s, self._cpu_s)
        self._process = context.Process(target=train, args=arguments, daemon=True)
        self._process.start()

    @property
    def so_far(self) -> SoFar:
        """The job's steps so far."""
        steps = int(self._steps.value)
        return SoFar(steps, self._ended_s[steps % _KEPT], self._cpu_s[steps % _KEPT])

    def pause(self) -> None:
        """Stop the job until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the job go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the job."""
        self._process.kill()
        self._process.join()

    def _signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def copying_bandwidth(size_mib: int = 8, repeats: int = 200) -> float:
    """Return the highest bandwidth of copying on one core, bytes/s: the unit of the shares of PCIe."""
    batch = np.ones(size_mib * _MIB, dtype=np.uint8)
    there = np.empty_like(batch)
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        np.copyto(there, batch)
        taken.append(time.perf_counter() - begin)
    return len(batch) / min(taken)
