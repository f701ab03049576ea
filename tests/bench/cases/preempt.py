"""A training job of two ranks is moved to other nodes, again and again: where the time goes until it makes its next step.

Two jobs are moved in turns, which differ in one word of their batch scripts: one has `srun`, as most have, the other `exec srun`.
Settings are the defaults. Phases are put together from the row of `headway preemptions`, from Slurm's states as `scontrol` tells
them, and from what the ranks wrote, all by this machine's clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from slurm.demo.run import jobpython
from slurm.demo.run.real import USER
from slurm.testbed.installation import Installation
from tests.bench.measuring.figures import Findings, spread
from tests.bench.measuring.grounds import Side, until, with_headway
from tests.bench.measuring.slurm_states import SlurmStates
from tests.returning.job import STAMPED_PYTHON, Records, Start, script

_VARIANTS = {"srun": "srun", "exec": "exec srun"}
"""Name of the job → command that starts its ranks."""
_STEPS = 100_000
"""More steps than the job makes before it is cancelled."""
_PAUSE_S = 0.1
_RANKS = 2
_STARTS_S = 120.0
_REST_S = (1.0, 3.0)
"""Training before each move, of random length, so that no phase of any timer is favoured."""


@dataclass(frozen=True, slots=True)
class Move:
    """One move. Times in seconds since the Unix epoch."""

    row: dict[str, Any]
    """Row of `headway preemptions --json`."""
    slurm: SlurmStates
    released_s: float
    """Time at which Headway had released the job."""
    starts: list[Start]
    """Starts of all ranks in the next run."""

    @property
    def start_up_s(self) -> float:
        """Time of imports and process group, from the start of the last rank's python. A late start counts for Slurm."""
        return self.last("joined_s") - self.last("begun_s")

    @property
    def whole_s(self) -> float:
        """Time from the request to the end of the first new step."""
        return self.last("stepped_s") - self.asked_s

    @property
    def asked_s(self) -> float:
        """Time of the request to the controller."""
        return float(self.row["asked_s"])

    def last(self, point: str) -> float:
        """Time at which the last rank had reached that point."""
        return max(float(getattr(start, point)) for start in self.starts)

    def between(self, begin: str, end: str) -> float:
        """Return the seconds from one time of the row to another."""
        return float(self.row[end] - self.row[begin])


_PHASES: tuple[tuple[str, str, Callable[[Move], float]], ...] = (
    ("asked → all saved", "", lambda move: move.between("asked_s", "saved_s")),
    ("saved → requeued", "", lambda move: move.between("saved_s", "stopped_s")),
    ("Slurm's COMPLETING", "begins before requeue returns; ", lambda move: move.slurm.lasted_s("COMPLETING")),
    (
        "PENDING → RUNNING",
        "settling second, reading, decision, release; ",
        lambda move: move.slurm.began_s("RUNNING") - move.slurm.began_s("PENDING"),
    ),
    ("of that, to Headway's release", "", lambda move: move.released_s - move.slurm.began_s("PENDING")),
    ("RUNNING → python", "slurmd, srun; ", lambda move: move.last("begun_s") - move.slurm.began_s("RUNNING")),
    ("python → torch imported", "", lambda move: move.last("imported_s") - move.last("begun_s")),
    ("torch imported → process group", "", lambda move: move.last("joined_s") - move.last("imported_s")),
    ("process group → model made", "", lambda move: move.last("made_s") - move.last("joined_s")),
    ("model made → restored", "", lambda move: move.last("restored_s") - move.last("made_s")),
    ("restored → first new step", "", lambda move: move.last("stepped_s") - move.last("restored_s")),
    ("python and torch start-up", "with the process group; ", lambda move: move.start_up_s),
    ("preempt to first new step", "", lambda move: move.whole_s),
    (
        "preempt to RESUMED in Headway",
        "when agents have reported a step; ",
        lambda move: move.between("asked_s", "resumed_s"),
    ),
)
_OURS = "preempt to first new step without python and torch"
_TARGET_S = 6.0


def run(*, quick: bool) -> Findings:
    """Measure."""
    findings = Findings("preempt")
    rng = random.Random(1)
    moves: dict[str, list[Move]] = {name: [] for name in _VARIANTS}
    with with_headway("fifo-skip", agents=True, nodes=4, gpus=4) as side:
        records = Records(side.cluster.files.work)
        records.prepare()
        jobs = {name: _submit(side, name, srun) for name, srun in _VARIANTS.items()}
        until(lambda: all(len(records.starts(name)) == _RANKS for name in jobs), "both jobs train", _STARTS_S, 0.1)
        for _ in range(1 if quick else 5):
            for name, job_id in jobs.items():
                time.sleep(rng.uniform(*_REST_S))
                moves[name].append(_move(side, records, name, job_id))
        side.cluster.run("scancel", *jobs.values())
        side.clear()
    for name, srun in _VARIANTS.items():
        _report(findings, srun, moves[name])
    return findings


def _submit(side: Side, name: str, srun: str) -> str:
    values = {**jobpython.user_environment(), **side.cluster.env}
    words = (f"{key}={value}" for key, value in values.items())
    text = script(name, steps=_STEPS, pause_s=_PAUSE_S, srun=srun, python=STAMPED_PYTHON)
    argv = ("env", "-i", *words, "sbatch", "--parsable", "--time=60")
    return side.cluster.run(*argv, stdin=text, user=USER).stdout.strip()


def _move(side: Side, records: Records, name: str, job_id: str) -> Move:
    headway = side.headway
    assert headway is not None
    before = len(records.starts(name))
    with SlurmStates(side, job_id) as slurm:
        headway.headway("move", job_id)
        until(lambda: len(records.starts(name)) == before + _RANKS, f"{name} goes on", _STARTS_S)
    row = until(lambda: _resumed(headway, job_id), f"Headway sees that {name} goes on", every_s=0.5)
    starts = records.starts(name)[before:]
    if {start.first for start in starts} != {row["step"]}:
        raise RuntimeError(f"{name} did not go on where it was stopped: {row}, {starts}")
    return Move(row, slurm, side.released()[job_id], starts)


def _resumed(headway: Installation, job_id: str) -> dict[str, Any]:
    """Return the newest preemption of the job if it has ended; else empty."""
    rows = [row for row in headway.ask("preemptions")["preemptions"] if row["job_id"] == job_id]
    row: dict[str, Any] = max(rows, key=lambda row: int(row["number"]))
    if row["stage"] in {"called off", "over"}:
        raise RuntimeError(f"the move of job {job_id} came to nothing: {row}")
    return row if row["stage"] == "resumed" else {}


def _report(findings: Findings, srun: str, moves: list[Move]) -> None:
    for phase, note, seconds in _PHASES:
        _add(findings, f"{srun}: {phase}", [seconds(move) for move in moves], note=note)
    _add(findings, f"{srun}: {_OURS}", [move.whole_s - move.start_up_s for move in moves], _TARGET_S)


def _add(findings: Findings, name: str, values: list[float], at_most: float | None = None, note: str = "") -> None:
    findings.add(name, median(values), "s", at_most, f"{note}{spread(values)}")
    findings.keep(f"{name}, s", values)
