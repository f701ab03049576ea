"""Stories on a real Slurm as data. They are written to JSON and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.campaign.plot.story import Step

STEPS_PER_S = 4
"""Steps that a job takes in a second (job.sh)."""
NODES = 3
GPUS = 8
"""GPUs of each node."""
FAST_NODE = "n1"
"""The node with the feature `fast`."""
USERS = ("daemon", "bin")
"""Plain users of every Debian, with different uids."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission, in the words of sbatch."""

    label: int
    """Number of the submission in its story: steps name jobs by it."""
    user: str
    steps: int
    """Steps until the job ends by itself."""
    gpus_per_node: int = 1
    nodes: int = 1
    gpus_in_all: int | None = None
    """--gpus instead of GPUs for each node."""
    array: int = 0
    """Tasks; 0 = no array."""
    throttle: int = 0
    after: tuple[tuple[str, int], ...] = ()
    """Dependencies: ("afterok", label of an earlier submission)."""
    begin_in_s: int | None = None
    hold: bool = False
    feature: str = ""
    requeue: bool = True
    exit_code: int = 0
    ignores_term: bool = False
    saves: bool = False
    """It saves and requeues itself on SIGUSR1, as its comment says."""
    managed: bool = True
    """It is in the partition that Headway schedules."""


@dataclass(frozen=True, slots=True)
class RealStory:
    """Operations and faults on the cluster, and the settings at its beginning."""

    seed: int
    policy: str
    preemption: str
    """Setting of the controller: off or automatic."""
    steps: tuple[Step, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read_real_story(path: Path) -> RealStory:
    """Read a story that `write` has written."""
    data = json.loads(path.read_text())
    steps = tuple(Step(step["after_s"], step["verb"], step["args"]) for step in data.pop("steps"))
    return RealStory(**data, steps=steps)


def submission_of(args: Mapping[str, Any]) -> Submission:
    """Return the submission that a step of verb "submit" makes."""
    values = dict(args)
    values["after"] = tuple((kind, label) for kind, label in values.get("after", ()))
    return Submission(**values)
