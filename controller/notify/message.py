"""One notification, and its JSON: the contract with the receivers. Pure."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from enum import StrEnum

from controller.base.text import clip, count
from controller.slurm.model.job import SlurmJob
from policies.serving.runtime.hostlist import fold

VERSION = 1
"""Version of the JSON. A change that may break a receiver raises it; new keys do not."""
_LONGEST_NAME = 200


class JobEvent(StrEnum):
    """An event in the life of a job."""

    STARTED = "started"
    """It runs for the first time."""
    PREEMPTED = "preempted"
    """It was stopped, and is placed again."""
    RESUMED = "resumed"
    """It runs again on its former nodes, or after a requeue of Slurm or of its user."""
    MOVED = "moved"
    """It runs again after a preemption, on other nodes."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Notification:
    """One event of one job."""

    event: JobEvent
    time_s: float
    """Unix time."""
    cluster: str
    job: SlurmJob
    detail: str = ""
    """Further words, for example the reason of a preemption; empty for none."""

    @property
    def text(self) -> str:
        """A sentence for people."""
        job, gpus = self.job, count(sum(share.gpus for share in self.job.allocated), "GPU")
        where = f" on {self._nodes} with {gpus}" if self._nodes and self.event is not JobEvent.ENDED else ""
        words = {
            JobEvent.STARTED: f"has started{where}",
            JobEvent.PREEMPTED: "was stopped, and is placed again",
            JobEvent.RESUMED: f"runs again{where}",
            JobEvent.MOVED: f"was moved, and runs{where}",
            JobEvent.ENDED: f"has ended: {job.state}",
        }
        detail = f": {self.detail}" if self.detail else ""
        return f"Job {job.key.job_id} ({self._name}) of {job.user} {words[self.event]}{detail}"

    def body(self) -> bytes:
        """Return the JSON as receivers get it."""
        values = {
            "version": VERSION,
            "event": self.event.value,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.time_s)),
            "time_s": round(self.time_s, 3),
            "cluster": self.cluster,
            "job_id": self.job.key.job_id,
            "job_name": self._name,
            "user": self.job.user,
            "partition": self.job.partition,
            "state": self.job.state,
            "nodes": self._nodes,
            "gpus": sum(share.gpus for share in self.job.allocated),
            "text": self.text,
        }
        return json.dumps(values).encode()

    @property
    def _name(self) -> str:
        return clip(self.job.name, _LONGEST_NAME)

    @property
    def _nodes(self) -> str:
        return fold([share.node for share in self.job.allocated])
