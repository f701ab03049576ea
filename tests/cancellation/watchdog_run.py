"""Runs of the watchdog, with the client of Slurm's command line, in which one await is cut. Its timer starts it again.

Slurm's programs are real processes that do nothing; what they would have answered comes from a small slurmctld in this process. In
the second run users hold jobs at the moment of their release: a watchdog that is cut must hand that over to the next one.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from controller.base.config import ControllerSettings
from controller.daemon.watchdog.requeued import Placed
from controller.daemon.watchdog.run import check_once
from controller.slurm.model.job import JobKey, ResourceRequest
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.user_holds import Hold, HoldFolder
from controller.state.ledger import PinRecord
from tests.cancellation.commands_run import Beside
from tests.cancellation.leftovers import on_own_loop
from tests.cancellation.points import Cut, Outcome, Point, Points
from tests.unit.controller.slurm.scontrol import slurmctld
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

_MOST_CHECKS = 12
_WITHIN_S = 120.0
_WAITS, _PINNED, _USERS, _OTHER, _REQUEUED = "7", "8", "9", "10", "11"
"""Jobs: one that waits, one that is about to start on nodes of Headway's choice, one that its user has just held, another one that
waits, and one that Slurm has requeued with nodes of Headway's choice."""


class _World:
    """A dead controller's jobs, and the watchdog that runs now."""

    def __init__(self, folder: Path, late: Collection[str] = ()) -> None:
        """`late`: jobs that their users hold when they are released."""
        self.settings = ControllerSettings(
            partitions=("dl",), runtime_dir=folder, state_dir=folder / "state", slurm_timeout_s=60.0
        )
        placed = {"req_nodes": "n1", "admin_comment": f"{HOLD_MARK} {PIN_MARK}"}
        again = {
            "req_nodes": "n1",
            "restarts": "1",
            "admin_comment": "",
            "priority": "4294901000",
            "reason": "Resources",
        }
        jobs = (slurmctld.held(7), slurmctld.held(8, **placed), slurmctld.held(9), slurmctld.held(10))
        self.slurm = slurmctld.Slurmctld(*jobs, slurmctld.held(11, **again))
        self.slurm.before = self._hold_late
        self._late, self._theirs = set(late), {_USERS, *late}
        self.holds = HoldFolder(self.settings.holds_path)
        self.holds.make()
        self.holds.write(_USERS, Hold(SUBMIT_S + 50.0))
        self.originals: Mapping[JobKey, ResourceRequest] = {}
        self.placed: Placed = {}

    def _hold_late(self, command: str) -> None:
        """Record the hold of a user right before the release: job_submit.lua accepts it, and Slurm does not show it."""
        verb, _, job_id = command.partition(" ")
        if verb == "release" and job_id in self._late:
            self._late.remove(job_id)
            self.holds.write(job_id, Hold(SUBMIT_S + 100.0))

    def client(self, _settings: object, *, only_marked: bool = True) -> CommandLineClient:
        """As `command_line_client` makes one."""
        return CommandLineClient(Beside(self.slurm), CLOCK, now=lambda: SUBMIT_S + 100.0)

    async def read_journal(self) -> None:
        """Note the request of the job that is about to start, and request and pin of the one that was requeued, as the journal has
        them."""
        jobs = {job.key.job_id: job for job in (await self.client(None).snapshot()).jobs}
        self.originals = {jobs[_PINNED].key: jobs[_PINNED].request}
        again = jobs[_REQUEUED]
        pin = PinRecord(again.request.required_nodes, (again.request.least_gpus,), 0, SUBMIT_S - 50.0, "fifo", "")
        former = again.key._replace(submit_time_s=SUBMIT_S - 100)
        self.placed = {former: (replace(again.request, required_nodes=()), pin)}

    @property
    def is_done(self) -> bool:
        """True when the watchdog has nothing left to do."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return what is not as it must be in the end."""
        found = []
        if self.slurm[_REQUEUED]["req_nodes"] == "n1":
            found.append(f"job {_REQUEUED} waits for its former node: {self.slurm[_REQUEUED]}")
        for job_id in (_WAITS, _PINNED, _USERS, _OTHER, _REQUEUED):
            job, marks = self.slurm[job_id], self.slurm[job_id]["admin_comment"].split()
            if job_id in self._theirs and (job["priority"] != "0" or USER_HOLD_MARK not in marks or HOLD_MARK in marks):
                found.append(f"the hold of job {job_id} by its user is lost: {job}")
            elif job_id not in self._theirs and (job["priority"] == "0" or HOLD_MARK in marks):
                found.append(f"job {job_id} stays held: {job}")
        return found


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Check again and again until nothing stays held, and cut that await in one of the checks."""
    return _run(at, cut, late=())


def run_broken_off(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """As `run`, while users hold two of the jobs at the moment of their release."""
    return _run(at, cut, late=(_WAITS, _PINNED))


def _run(at: Point | None, cut: Cut, late: Collection[str]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        world, points = _World(Path(folder), late), Points(at, cut)
        return on_own_loop(points, lambda: _checks(world, points))


async def _checks(world: _World, points: Points) -> Outcome:
    outcome = Outcome(points.reached, done=False, lines=points.lines)
    with ExitStack() as stack:
        stack.enter_context(patch("controller.slurm.select.command_line_client", world.client))
        stack.enter_context(patch("controller.daemon.watchdog.run.confirm_s", lambda _beat_s: 0.02))
        points.counting = False
        await world.read_journal()
        points.counting = True
        stack.enter_context(patch("controller.daemon.watchdog.run._originals", lambda _settings: world.originals))
        stack.enter_context(patch("controller.daemon.watchdog.run._placed", lambda _settings: world.placed))
        for _ in range(_MOST_CHECKS):
            check = points.begin(_check(world, outcome))  # type: ignore[arg-type]
            done, _ = await asyncio.wait({check}, timeout=_WITHIN_S)
            if not done:
                outcome.violations.append(f"a check did not end within {_WITHIN_S:g} s")
                check.cancel()
                break
            outcome.exits += check.cancelled() or check.exception() is not None
            await asyncio.sleep(0.01)
            if world.is_done:
                break
    outcome.done = points.done
    outcome.violations += world.problems()
    outcome.violations += [f"a task is left: {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
    return outcome


async def _check(world: _World, outcome: Outcome) -> None:
    outcome.exits += await check_once(lambda: (world.settings, ""))
