"""One story while it is played: the cluster, the model, and what operations and faults share."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.real.model import Disturbance, Expected, RealModel
from tests.campaign.real.world import World

AFTERMATH_S = 3.0
"""How long after a daemon of Slurm is back its nodes and jobs may still be affected."""

_REASON_CHARACTERS = 100


@dataclass
class Scene:
    """Invariant: jobs of the story write their logs into `folder`, and no other story's jobs do."""

    world: World
    model: RealModel
    folder: Path
    seed: int
    begun_s: float = field(default_factory=time.time)
    unknown: dict[int, float] = field(default_factory=dict)
    """Label of a submission without an answer → its time: Slurm may have the job."""
    slow_by_s: float = 0.0
    """How much longer Slurm's programs take for the controller."""
    slurm_away_until_s: float = 0.0
    """slurmctld does not answer until then."""
    controller_stopped: bool = False
    disk_is_slow: bool = False
    """The controller may stand still at each write to its disk."""
    effects: Counter[str] = field(default_factory=Counter)
    """Events that show that faults had an effect."""
    preemptions: int = 0
    """Requests of operators that Headway accepted."""
    refused: Counter[str] = field(default_factory=Counter)
    """Reason → requests of operators for a preemption that were not accepted."""
    suspended: dict[str, float] = field(default_factory=dict)
    """Job that root has suspended → monotonic time at which it is to be resumed."""
    asks_nodes: bool = False
    """A fault killed something that Slurm notices only when it asks its nodes again."""
    notes: list[str] = field(default_factory=list)
    """Operations and faults with their times, for the report of a violation."""

    def note(self, text: str) -> None:
        """Write down what was done."""
        self.notes.append(f"{time.time():.2f} {text}")

    def refuse(self, text: str) -> None:
        """Count a preemption that was not accepted; numbers of jobs and names of folders do not distinguish reasons."""
        first = text.strip().partition("\n")[0]
        short = re.sub(r"\d[\d_.]*", "N", re.sub(r"/\S+", "PATH", first))
        self.refused[short[:_REASON_CHARACTERS] or "no answer"] += 1

    def job_name(self, label: int) -> str:
        """Name of the jobs of a submission, unique among all stories of the cluster."""
        return f"story{self.seed}-{label}"

    def some(self, label: int, task: int) -> list[Expected]:
        """Return one task of an array, or the job; all tasks for a negative number."""
        ids = self.model.labels.get(label, [])
        if task >= 0 and ids:
            ids = [ids[task % len(ids)]]
        return [self.model.jobs[job_id] for job_id in ids]

    @property
    def controller_stands_still(self) -> bool:
        """True while the controller is stopped, or may wait for its disk."""
        return self.controller_stopped or self.disk_is_slow

    def disturb(self, node: str | None, seconds: float) -> None:
        """Note that Slurm's daemon on that node (None: slurmctld) is away for so long from now on."""
        now_s = time.time()
        self.model.disturbances.append(Disturbance(node, now_s - 1.0, now_s + seconds + AFTERMATH_S))
        if node is None:
            self.slurm_away_until_s = max(self.slurm_away_until_s, now_s + seconds + AFTERMATH_S)
