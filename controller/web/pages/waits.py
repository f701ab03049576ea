"""Waits by size: of the jobs that have ended lately, of those that run now until their start, and of those that wait until now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from headway_client import Queue, QueueEntry, SizeWaits

from controller.base.apart import apart
from controller.base.job_sizes import SIZES, quantile, size_class

_NONE = SizeWaits()


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Waits of the jobs of one size."""

    size: str
    ended: int
    ended_p50_s: float | None
    ended_p95_s: float | None
    started: int
    started_p50_s: float | None
    started_p95_s: float | None
    waiting: int
    waiting_p50_s: float | None
    waiting_p95_s: float | None


def wait_rows(queue: Queue, ended: Sequence[SizeWaits] = ()) -> list[WaitRow]:
    """Return a row for each size of which there are jobs, the smallest first. `ended`: waits of jobs that have ended."""
    found: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for entry in queue.entries:
        if entry.num_gpus and (entry.state == "running" or _waits(entry)):
            with apart("rows of web pages", entry.job_id):
                found[size_class(entry.num_gpus)][_waits(entry)].append(entry.wait_s)
    past = {size_class(waits.most_gpus) if waits.most_gpus else len(SIZES): waits for waits in ended}
    return [_row(size, past.get(size, _NONE), *found[size]) for size in sorted(found.keys() | past.keys())]


def _waits(entry: QueueEntry) -> bool:
    return entry.state in {"waiting", "yielded"}


def _row(size: int, ended: SizeWaits, started: Sequence[float], waiting: Sequence[float]) -> WaitRow:
    return WaitRow(
        _words(size), ended.jobs, ended.p50_s if ended.jobs else None, ended.p95_s if ended.jobs else None, len(started),
        quantile(started, 0.5), quantile(started, 0.95), len(waiting), quantile(waiting, 0.5), quantile(waiting, 0.95),
    )  # fmt: skip


def _words(at: int) -> str:
    if at == len(SIZES):
        return f"more than {SIZES[-1]} GPUs"
    least = SIZES[at - 1] + 1 if at else 1
    if least == SIZES[at]:
        return "1 GPU" if least == 1 else f"{least} GPUs"
    return f"{least} to {SIZES[at]} GPUs"
