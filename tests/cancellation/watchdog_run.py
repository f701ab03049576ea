"""A run of the watchdog, with the client of Slurm's command line, in which one await is cut. Its timer starts it again.

Slurm's programs are real processes that do nothing; what they would have answered comes from a small slurmctld in this process.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from controller.base.config import ControllerSettings
from controller.daemon.watchdog.run import check_once
from controller.slurm.client import HOLD_MARK, PIN_MARK, USER_HOLD_MARK, JobKey, ResourceRequest
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.run import Completed, ProcessRunner
from controller.slurm.user_holds import HoldFolder
from tests.campaign.play import captured_errors
from tests.cancellation.controller_run import Outcome
from tests.cancellation.leftovers import complaint, held, left_for_good
from tests.cancellation.points import INJECTED, Cut, Point, Points
from tests.unit.controller.slurm.scontrol import slurmctld
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

_MOST_CHECKS = 12
_WITHIN_S = 120.0
_RELEASED, _PINNED, _USERS = "7", "8", "9"
"""Jobs: one that waits, one that is about to start on nodes of Headway's choice, and one that its user has just held."""


class _Runner:
    """Runs a real process for each call, and then answers as the small slurmctld does."""

    def __init__(self, slurm: slurmctld.Slurmctld) -> None:
        self._slurm = slurm
        self._processes = ProcessRunner(bin_dir=None, environment={"PATH": "/usr/bin:/bin"}, timeout_s=60.0)

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        await self._processes.run("true", ())
        return await self._slurm.run(program, arguments, stdin)


class _World:
    """A dead controller's jobs, and the watchdog that runs now."""

    def __init__(self, folder: Path) -> None:
        self.settings = ControllerSettings(
            partitions=("dl",), runtime_dir=folder, state_dir=folder / "state", slurm_timeout_s=60.0
        )
        placed = {"req_nodes": "n1", "admin_comment": f"{HOLD_MARK} {PIN_MARK}"}
        jobs = (slurmctld.held(7), slurmctld.held(8, **placed), slurmctld.held(9))
        self.slurm = slurmctld.Slurmctld(*jobs)
        self.holds = HoldFolder(self.settings.holds_path)
        self.holds.make()
        self.holds.write(_USERS, SUBMIT_S + 50.0)
        self.originals: Mapping[JobKey, ResourceRequest] = {}

    def client(self, _settings: object, *, only_marked: bool = True) -> CommandLineClient:
        """As `command_line_client` makes one."""
        return CommandLineClient(_Runner(self.slurm), CLOCK, now=lambda: SUBMIT_S + 100.0)

    async def read_originals(self) -> None:
        """Note the request of the job that is about to start, as the journal has it."""
        jobs = (await self.client(None).snapshot()).jobs
        self.originals = {job.key: job.request for job in jobs if job.key.job_id == _PINNED}

    @property
    def is_done(self) -> bool:
        """True when the watchdog has nothing left to do."""
        return not self.problems()

    def problems(self) -> list[str]:
        """Return what is not as it must be in the end."""
        found = [
            f"job {job_id} stays held: {self.slurm[job_id]}"
            for job_id in (_RELEASED, _PINNED)
            if self.slurm[job_id]["priority"] == "0" or HOLD_MARK in self.slurm[job_id]["admin_comment"].split()
        ]
        users = self.slurm[_USERS]
        if users["priority"] != "0" or USER_HOLD_MARK not in users["admin_comment"].split():
            found.append(f"the hold of job {_USERS} by its user is lost: {users}")
        return found


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Check again and again until nothing stays held, and cut that await in one of the checks."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder, captured_errors() as errors:
        world, points = _World(Path(folder)), Points(at, cut)
        complaints: list[str] = []
        loop = asyncio.new_event_loop()
        loop.set_task_factory(points.factory)
        loop.set_exception_handler(lambda _loop, context: complaints.append(complaint(context)))
        before = held()
        try:
            asyncio.set_event_loop(loop)
            outcome = loop.run_until_complete(_checks(world, points))
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()
    gc.collect()
    outcome.violations += [text for text in errors if not any(word in text for word in INJECTED)]
    outcome.violations += complaints + left_for_good(before, ended=False)
    return outcome


async def _checks(world: _World, points: Points) -> Outcome:
    outcome = Outcome(points.reached, done=False, lines=points.lines)
    with ExitStack() as stack:
        stack.enter_context(patch("controller.slurm.select.command_line_client", world.client))
        stack.enter_context(patch("controller.daemon.watchdog.run.confirm_s", lambda _beat_s: 0.02))
        points.counting = False
        await world.read_originals()
        points.counting = True
        stack.enter_context(patch("controller.daemon.watchdog.run._originals", lambda _settings: world.originals))
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
