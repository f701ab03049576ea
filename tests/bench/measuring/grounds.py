"""Clusters for measurements: two equal ones, with Headway and without, and a large one."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from slurm.demo.run import jobpython
from slurm.minicluster.cluster import ClusterSpec, MiniCluster
from slurm.testbed.installation import Installation

_numbers = itertools.count(1)
_RUNS = re.compile(
    r"\[(?P<time>[\d\-T:.]+)\] (?:sched(?:/backfill)?: (?:Allocate|_start_job: Started) |prolog_running_decr: Configuration for )"
    r"JobId=(?P<job>\d+(?:_\d+)?)"
)
_BULK = re.compile(r"REQUEST_JOB_INFO\s+\(\s*\d+\)\s+count:(\d+)")

_STAMP = """#!/bin/bash
echo "$EPOCHREALTIME" > "$1.${SLURM_ARRAY_TASK_ID:-one}"
"""


class NotThereError(Exception):
    """Something did not happen in time."""


def until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0, every_s: float = 0.01) -> Any:
    """Wait until the condition returns something true, and return it. Raises NotThereError."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise NotThereError(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)
    return found


@dataclass
class Side:
    """One cluster, with Headway or without."""

    name: str
    cluster: MiniCluster
    headway: Installation | None
    _stamps: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def prepare(self) -> None:
        """Write the job script: its first line stamps the time."""
        self.script.write_text(_STAMP)
        self.script.chmod(0o755)

    @property
    def script(self) -> Path:
        """Path of the job script."""
        return self.cluster.files.work / "stamp.sh"

    def new_stamp(self) -> Path:
        """Return the path of the next job's stamps; ".one" or the index of the array task is appended."""
        return self.cluster.files.work / f"stamp-{next(self._stamps)}"

    def sbatch_argv(self, stamp: Path, *options: str) -> list[str]:
        """Submit a job of one GPU that writes its stamp and ends."""
        return [
            "sbatch", "--parsable", "--output=/dev/null", "--time=5", "--mem=100", "--gres=gpu:1",
            *options, str(self.script), str(stamp),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the environment of Slurm's programs."""
        return {**os.environ, **self.cluster.env}

    def running(self) -> dict[str, float]:
        """Job id → when slurmctld had it RUNNING (its log has milliseconds; `scontrol` only has seconds).

        That is when it is given its nodes; where there is a PrologSlurmctld, when that has ended (CONFIGURING until then).
        """
        log = (self.cluster.files.log / "slurmctld.log").read_text(errors="replace")
        return {match["job"]: datetime.fromisoformat(match["time"]).timestamp() for match in _RUNS.finditer(log)}

    def released(self) -> dict[str, float]:
        """Return the time at which Headway released each job, by id. Empty without Headway."""
        if self.headway is None:
            return {}
        with closing(sqlite3.connect(f"file:{self.headway.folder}/state/journal.sqlite?mode=ro", uri=True)) as journal:
            return dict(
                journal.execute("SELECT job_id, MAX(done_time_s) FROM intent WHERE verb = 'release' GROUP BY 1")
            )

    def bulk_queries(self) -> int:
        """Return the number of requests for all jobs that slurmctld has served since its start."""
        found = _BULK.search(self.cluster.run("sdiag").stdout)
        return int(found[1]) if found else 0

    def clear(self) -> None:
        """Wait for an idle cluster, and remove the stamps."""
        self.cluster.wait_idle()
        for path in self.cluster.files.work.glob("stamp-*"):
            path.unlink()


def stamped_s(path: Path) -> float | None:
    """Return the time that a job wrote, seconds since the Unix epoch; None = it has not."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    return float(text) if text.endswith("\n") else None


def cluster_name() -> str:
    """Return a name that no other process uses."""
    return f"bench-{os.getpid()}-{next(_numbers)}"


@contextmanager
def with_headway(
    policy: str = "srtf", settings: dict[str, Any] | None = None, *, agents: bool = False, **spec: Any
) -> Iterator[Side]:
    """A cluster with plugin, hooks, controller and policy server, all as installed.

    `agents`: and an agent on every node; all users may run this Python there.
    """
    name = cluster_name()
    with (
        Installation.prepare(name, with_agents=agents) as headway,
        MiniCluster(headway.cluster_spec(name=name, **spec)) as cluster,
    ):
        headway.configure(cluster, **(settings or {}))
        headway.start_policy(policy)
        headway.start_controller()
        if agents:
            jobpython.open_to_users(cluster)
            headway.agents.start_all(cluster)
        side = Side("Headway", cluster, headway)
        side.prepare()
        yield side


@contextmanager
def without_headway(**spec: Any) -> Iterator[Side]:
    """Boot the same cluster without Headway: no plugin, no hooks, no controller."""
    with MiniCluster(ClusterSpec(name=cluster_name(), **spec)) as cluster:
        side = Side("Slurm alone", cluster, None)
        side.prepare()
        yield side


@contextmanager
def pair(**spec: Any) -> Iterator[tuple[Side, Side]]:
    """Boot both clusters: (Headway, Slurm alone)."""
    with ExitStack() as stack:
        yield stack.enter_context(with_headway(**spec)), stack.enter_context(without_headway(**spec))
