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
from typing import Any

import numpy as np

_UNIT = 20_000
"""Numbers of one unit of preparing."""
_MIB = 1 << 20


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


def train(kind: JobKind, steps: Any, cpu_s: Any) -> None:
    """Make steps for ever; `steps` and `cpu_s` are shared values with their number and the CPU seconds so far."""
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
        cpu_s.value = time.process_time()
        steps.value += 1


class EmulatedJob:
    """A job in a process of its own. Invariant: after `close` the process has ended."""

    def __init__(self, kind: JobKind) -> None:
        context = multiprocessing.get_context("fork")
        self._steps, self._cpu_s = context.Value("q", 0, lock=False), context.Value("d", 0.0, lock=False)
        self._process = context.Process(target=train, args=(kind, self._steps, self._cpu_s), daemon=True)
        self._process.start()

    @property
    def so_far(self) -> tuple[int, float]:
        """Steps, and CPU seconds, so far."""
        return int(self._steps.value), float(self._cpu_s.value)

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
