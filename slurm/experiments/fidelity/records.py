"""The measurements and their file: one JSON file with everything that a prediction or a report needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from slurm.experiments.fidelity.mix import Lengths

WARM_UP_STEPS = 2
"""DDP rearranges its buckets after the first step."""


@dataclass(frozen=True, slots=True)
class Run:
    """One job by the records of Slurm and of the job itself. Times in seconds since the Unix epoch."""

    name: str
    submit_s: float
    start_s: float
    """Time at which it received its nodes."""
    end_s: float
    nodes: tuple[str, ...]
    begun_s: float
    """Time at which rank 0 started."""
    times_s: tuple[float, ...]
    """Times before the first step, and after each."""
    forward_s: float
    """Mean time of a step's forward pass."""

    @property
    def jct_s(self) -> float:
        """From submission to end."""
        return self.end_s - self.submit_s

    @property
    def run_s(self) -> float:
        """Time for which the job had its nodes."""
        return self.end_s - self.start_s

    @property
    def step_s(self) -> float:
        """Mean duration of a step, without the first ones."""
        return (self.times_s[-1] - self.times_s[WARM_UP_STEPS]) / (len(self.times_s) - 1 - WARM_UP_STEPS)

    @property
    def fixed_s(self) -> float:
        """Time of the run that does not grow with its steps: start-up, the slower first steps, and the end."""
        return self.run_s - (len(self.times_s) - 1) * self.step_s


@dataclass(frozen=True, slots=True)
class Isolated:
    """One kind of job on so many nodes, alone on an idle cluster."""

    kind: str
    nodes: int
    run: Run
    bytes_per_step: float
    """Bytes of a step over the busiest NIC in its busier direction, headers included."""
    fixed_bytes: float
    """Bytes of the whole run outside its steps: the replicas are made equal at the start."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One trace under one policy."""

    policy: str
    began_s: float
    runs: tuple[Run, ...]
    """Runs in the order of the trace."""
    cpu_busy: float
    """Busy share of the machine's cores."""

    @property
    def avg_jct_s(self) -> float:
        """Mean over jobs."""
        return fmean(run.jct_s for run in self.runs)


@dataclass(frozen=True, slots=True)
class Measured:
    """All of one experiment."""

    seed: int
    jobs: int
    lengths: Lengths
    rate: str
    """Rate of every NIC in the form of tc."""
    machine: Mapping[str, Any]
    isolated: tuple[Isolated, ...]
    replays: tuple[Replay, ...]

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> Measured:
        """Restore the records from the JSON form of `dataclasses.asdict`."""
        isolated = tuple(Isolated(**{**row, "run": _run(row["run"])}) for row in table["isolated"])
        replays = tuple(Replay(**{**row, "runs": tuple(_run(run) for run in row["runs"])}) for row in table["replays"])
        lengths = Lengths(**table["lengths"])
        return cls(**{**table, "lengths": lengths, "isolated": isolated, "replays": replays})


def _run(row: Mapping[str, Any]) -> Run:
    return Run(**{**row, "nodes": tuple(row["nodes"]), "times_s": tuple(row["times_s"])})
