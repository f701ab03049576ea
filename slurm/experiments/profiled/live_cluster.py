"""The cluster on which a program is profiled: three racks, an agent on every node, and `sched2` with a record of what it sees."""

from __future__ import annotations

import json
import math
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.profiles.store import ProfileStore
from controller.profiles.windows import Throughput
from slurm.experiments.errors import ExperimentError
from slurm.experiments.turns.live_cluster import booted
from slurm.experiments.turns.racks import RackedCluster, in_racks

NODES, GPUS, RACK = 15, 8, 5
RATE = "200mbit"
WINDOW_S = 5.0
_MEBIBYTES, _WIDTH = 2, 512
"""Gradients of a step, in layers of a mebibyte each: about 0.13 s on a node's link, with any number of nodes."""
_COMPUTE_S = 0.05
_STEPS = 1_000_000
"""More than any profiling run makes: it is cancelled."""
_READ_S = 0.5
_RECORD = "decisions.jsonl"


@dataclass(frozen=True, slots=True)
class Seen:
    """View of the policy in one decision."""

    curve: tuple[float, ...]
    """Throughput of the program at each tier of locality, relative to the first; empty while none is known."""
    waiting: dict[str, list[float]]
    """Hours of each waiting job under the four placements, by its id."""


class ProfiledCluster(RackedCluster):
    """A cluster on which one program runs again and again."""

    def begin(self, name: str, *shape: str) -> None:
        """Submit the program with these options."""
        arguments = f"{_STEPS} {_MEBIBYTES} {_WIDTH} {_COMPUTE_S}"
        self.submit(name, ("--job-name=profiled", "--time=60", *shape), arguments, tasks="")

    def until(self, done: Callable[[], bool], goal: str, timeout_s: float) -> None:
        """Wait until `done` holds. Raises ExperimentError, with the end of the controller's log, if that takes too long."""
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise ExperimentError(
                    f"{goal}: not after {timeout_s:g} s; {self._end_of_log(next(reversed(self._ids)))}"
                )
            time.sleep(_READ_S)

    def alone(self, name: str) -> list[Throughput]:
        """Return the measured windows of a job in which no other job was beside it."""
        kept = f"file:{self.headway.folder}/state/profiles.sqlite?mode=ro"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "profiles.sqlite"
            with closing(sqlite3.connect(kept, uri=True)) as source, closing(sqlite3.connect(path)) as copy:
                source.backup(copy)
            with closing(ProfileStore(path)) as store:
                job_id = int(self.id_of(name))
                return [each for each in store.throughputs(0.0) if each.run.job_id == job_id and each.alone]

    def speed(self, name: str) -> float:
        """Return the median of its steps/s in these windows."""
        return statistics.median(window.steps_per_s for window in self.alone(name))

    def decisions(self) -> list[Seen]:
        """Return what the policy has seen so far."""
        path = self.headway.folder / _RECORD
        text = path.read_text() if path.exists() else ""
        return [_seen(json.loads(line)) for line in text[: text.rfind("\n") + 1].splitlines()]

    def cancel(self, name: str) -> None:
        """Cancel a job, and wait until its GPUs are free."""
        self.cluster.run("scancel", self.id_of(name))
        self.until(lambda: not self._state(name), f"{name} has ended", 120.0)

    def nodes(self, name: str) -> str:
        """Return the nodes of a job, as Slurm writes them; empty unless it runs."""
        return self._state(name, "%N") if self._state(name) == "RUNNING" else ""

    def _state(self, name: str, field: str = "%T") -> str:
        return self.cluster.run("squeue", "--noheader", "-o", field, "-j", self.id_of(name), check=False).stdout.strip()


def _seen(record: dict[str, Any]) -> Seen:
    known = [curve for curve in record["localities"].values() if not math.isnan(curve[0])]
    return Seen(tuple(known[0]) if known else (), record["waiting"])


@contextmanager
def profiled_cluster(report: Callable[[str], None]) -> Iterator[ProfiledCluster]:
    """Boot a cluster of three racks on which the recorded `sched2` decides. Remove everything at the end.

    Raises ExperimentError without racks.
    """
    spec: dict[str, Any] = {
        "gpus": GPUS,
        "rate": RATE,
        **in_racks(NODES // RACK, RACK),
    }
    settings = {"policy_deadline_s": 30.0, "agents_window_s": WINDOW_S}
    with booted("profiled", report, settings, **spec) as parts:
        cluster = ProfiledCluster(*parts)
        cluster.require_racks()
        headway = cluster.headway
        address = headway.runtime_dir / "recording.sock"
        module = "slurm.experiments.profiled.recording_policy"
        headway.start("recording", [sys.executable, "-m", module, f"unix://{address}", str(headway.folder / _RECORD)])
        headway.wait(address.exists, "recording")
        headway.headway("policy", "use", f"unix://{address}")
        yield cluster
