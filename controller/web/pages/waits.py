"""Waits by size: of the jobs that run now until their start, and of those that wait until now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway_client import Queue, QueueEntry

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the sizes, in GPUs."""


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Waits of the jobs of one size."""

    size: str
    started: int
    started_p50_s: float | None
    started_p95_s: float | None
    waiting: int
    waiting_p50_s: float | None
    waiting_p95_s: float | None


def wait_rows(queue: Queue) -> list[WaitRow]:
    """Return a row for each size of which there are jobs, the smallest first."""
    found: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for entry in queue.entries:
        if entry.num_gpus and (entry.state == "running" or _waits(entry)):
            found[_size(entry.num_gpus)][_waits(entry)].append(entry.wait_s)
    return [_row(size, *found[size]) for size in sorted(found)]


def _waits(entry: QueueEntry) -> bool:
    return entry.state in {"waiting", "yielded"}


def _row(size: int, started: Sequence[float], waiting: Sequence[float]) -> WaitRow:
    return WaitRow(
        _words(size), len(started), quantile(started, 0.5), quantile(started, 0.95), len(waiting),
        quantile(waiting, 0.5), quantile(waiting, 0.95),
    )  # fmt: skip


def quantile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that so large a share of the values does not exceed; None: there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(-int(-len(ordered) * share // 1) - 1, 0)]


def _size(gpus: int) -> int:
    """Return the position of the size in SIZES; the last one is for larger jobs."""
    return next((at for at, most in enumerate(SIZES) if gpus <= most), len(SIZES))


def _words(at: int) -> str:
    if at == len(SIZES):
        return f"more than {SIZES[-1]} GPUs"
    least = SIZES[at - 1] + 1 if at else 1
    if least == SIZES[at]:
        return "1 GPU" if least == 1 else f"{least} GPUs"
    return f"{least} to {SIZES[at]} GPUs"
