"""A run of the pyslurm client's readings, with a real child process, in which one await is cut.

The child has the fake of pyslurm; its jobs are in a file, and change between two readings.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.pyslurm.client import PySlurmClient
from controller.slurm.pyslurm.process import WorkerProcess
from controller.slurm.scontrol.client import CommandLineClient
from tests.cancellation.commands_run import Beside, until_done
from tests.cancellation.leftovers import on_own_loop
from tests.cancellation.points import Cut, Outcome, Point, Points
from tests.unit.controller.slurm.scontrol.slurmctld import Slurmctld
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

_MODULE = """
import json, pathlib
from types import SimpleNamespace
from tests.unit.controller.slurm.pyslurm.fake_pyslurm import FakePySlurm, JobRow, RPCError
_module = FakePySlurm()
Nodes, Partitions, Reservations = _module.Nodes, _module.Partitions, _module.Reservations
def _rows():
    rows = json.loads(pathlib.Path({rows!r}).read_text())
    return {{int(job): JobRow(id=int(job), state_reason=reason) for job, reason in rows.items()}}
class Job:
    @staticmethod
    def load(job):
        return _rows()[job]
Jobs = SimpleNamespace(load=_rows)
"""
_READINGS = (
    {"7": "JobHeldUser", "8": "JobHeldUser"},
    {"7": "JobHeldUser", "8": "Priority", "9": "JobHeldUser"},
    {"8": "Priority", "9": "Priority"},
)
"""Jobs and their reasons, reading by reading."""


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Read again and again while the jobs change, and cut that await in one of the readings, which is then made again."""
    points = Points(at, cut)
    with tempfile.TemporaryDirectory(prefix="hw-") as folder, patch.object(sys, "path", [folder, *sys.path]):
        rows = Path(folder) / "rows.json"
        (Path(folder) / "pyslurm.py").write_text(_MODULE.format(rows=str(rows)))
        return on_own_loop(points, lambda: _readings(points, rows))


async def _readings(points: Points, rows: Path) -> Outcome:
    outcome = Outcome(points.reached, done=False, lines=points.lines)
    worker = WorkerProcess({"PATH": "/usr/bin:/bin"}, timeout_s=60.0)
    client = PySlurmClient(worker, CommandLineClient(Beside(Slurmctld()), CLOCK))
    for reasons in _READINGS:
        rows.write_text(json.dumps(reasons))
        seen: tuple[SlurmJob, ...] = ()

        async def snapshot() -> None:
            nonlocal seen
            seen = (await client.snapshot()).jobs

        async def read() -> None:
            nonlocal seen
            seen = tuple((await client.read([JobKey(job_id, SUBMIT_S) for job_id in reasons])).values())  # noqa: B023 - at once

        for reading in (snapshot, read, snapshot):
            await until_done(reading.__name__, reading, points, outcome)
            found = {job.key.job_id: job.reason for job in seen}
            if found != reasons:
                outcome.violations.append(f"{reading.__name__} shows {found}, not {reasons}")
    await client.close()
    outcome.done = points.done
    outcome.violations += [f"a task is left: {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
    return outcome
