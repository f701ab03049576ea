"""Jobs that slow each other down, and jobs whose GPUs are idle, as the agents have measured."""

from __future__ import annotations

from dataclasses import dataclass

from headway_client import Queue, QueueEntry


@dataclass(frozen=True, slots=True)
class Pair:
    """Two jobs that share a link or a host, and how much slower each trains than alone."""

    first: QueueEntry
    second_id: str
    second: QueueEntry | None
    """None: a job that this user may not see, or that Headway does not manage."""

    @property
    def worst(self) -> float:
        """The larger slowdown of the two; 0 where none is known."""
        return max(self.first.slowdown or 0.0, (self.second.slowdown or 0.0) if self.second else 0.0)


def pairs(queue: Queue) -> list[Pair]:
    """Return each pair once, the most slowed down first."""
    by_id = {entry.job_id: entry for entry in queue.entries}
    found: dict[tuple[str, ...], Pair] = {}
    for entry in queue.entries:
        for other in entry.beside:
            found.setdefault(tuple(sorted((entry.job_id, other))), Pair(entry, other, by_id.get(other)))
    return sorted(found.values(), key=lambda pair: -pair.worst)


def idle(queue: Queue) -> list[QueueEntry]:
    """Return the running jobs of which GPUs were idle in the newest window, the most idle GPUs first."""
    return sorted((entry for entry in queue.entries if entry.idle_gpus), key=lambda entry: -(entry.idle_gpus or 0))


def measured(queue: Queue) -> int:
    """Return the number of running jobs that were measured."""
    return sum(entry.idle_gpus is not None for entry in queue.entries)
