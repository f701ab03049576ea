"""Stories as data: steps with their times. They are written to JSON, read back, and shortened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One submission, in the words of sbatch."""

    label: int
    """Number of the submission in its story: steps name jobs by it."""
    duration_s: float
    gpus_per_node: int = 1
    nodes: int = 1
    gpus_in_all: int | None = None
    """--gpus instead of GPUs for each node."""
    most_nodes: int | None = None
    array: int = 0
    """Tasks; 0 = no array."""
    throttle: int = 0
    after: tuple[tuple[str, int], ...] = ()
    """Dependencies: ("afterok", label of an earlier submission)."""
    begin_in_s: float | None = None
    hold: bool = False
    feature: str = ""
    time_limit_s: float | None = None
    requeue: bool = True
    exit_code: int = 0
    ignores_term: bool = False
    trains: bool = False
    """Its ranks save on request."""
    preemptible: bool = False
    """It saves and requeues itself on USR1, as its comment says."""
    managed: bool = True
    """It is in a partition of Headway's."""
    unfit: tuple[str, ...] = ()
    """Nodes on which Slurm refuses it, whatever is free there."""
    free_choice_only: bool = False
    user: str = "alice"
    name: str = "train"
    comment: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation or fault, some time after the step before."""

    after_s: float
    verb: str
    args: Mapping[str, Any] = field(default_factory=dict)
    awaits: int = 0
    """If not 0, the step happens when the controller has resumed so many more awaits: in the middle of a cycle."""


@dataclass(frozen=True, slots=True)
class Story:
    """A cluster, and the steps that happen there."""

    seed: int
    nodes: int
    gpus: int
    policy: str
    preemption: bool
    steps: tuple[Step, ...]
    answer_s: float = 0.002
    """Time that a policy server takes for an answer."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Users whom Slurm allows so many GPUs at a time."""
    most_at_once: int = 0
    """Jobs that slurmctld can change within the time limit of a call; 0 = any number."""
    partition: str = "dl"
    """Headway's partition."""

    def with_steps(self, steps: tuple[Step, ...]) -> Story:
        """Return the same story with other steps."""
        return replace(self, steps=steps)

    def write(self, path: Path, violations: Sequence[str] = ()) -> None:
        """Write it as JSON, with the promises that it broke."""
        also = {"violations": list(violations)} if violations else {}
        path.write_text(json.dumps(asdict(self) | also, indent=1) + "\n")


def read_story(path: Path) -> Story:
    """Read a story that `write` has written, without the promises that it broke then."""
    data = json.loads(path.read_text())
    data.pop("violations", None)
    steps = tuple(Step(**step) for step in data.pop("steps"))
    return Story(**data, steps=steps)


def spec_of(args: Mapping[str, Any]) -> JobSpec:
    """Return the submission that a step of verb "submit" makes."""
    values = dict(args)
    values["after"] = tuple((kind, label) for kind, label in values.get("after", ()))
    values["unfit"] = tuple(values.get("unfit", ()))
    return JobSpec(**values)
