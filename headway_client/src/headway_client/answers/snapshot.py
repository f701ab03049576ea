"""Everything that a screen like `top` shows, asked at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway_client.answers.jobs import Queue
from headway_client.answers.message import plain
from headway_client.answers.preemptions import PreemptionList
from headway_client.answers.status import Status


@dataclass(frozen=True)
class Snapshot:
    """Answers of several calls that were made one right after the other."""

    status: Status
    queue: Queue | None
    """None = this user may not see jobs, or the controller has not read Slurm yet."""
    preemptions: PreemptionList | None
    """The newest preemptions; None as for the queue."""

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as dicts, lists, texts and numbers, ready for JSON."""
        return {name: plain(value) for name, value in vars(self).items()}
