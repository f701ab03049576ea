"""Runs of Slurm's clients in which one await is cut: every verb, one after the other, on jobs of a small slurmctld in this process.

Slurm's programs are real processes that do nothing; there is one before each answer of the small slurmctld and one after it, so
that a call is cut before its commands have been carried out, or when they have been and the answer does not arrive.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controller.slurm.client import Pin
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from controller.slurm.pyslurm.calls import PySlurmCalls
from controller.slurm.pyslurm.client import PySlurmClient
from controller.slurm.pyslurm.process import WorkerProcess
from controller.slurm.scontrol.client import CommandLineClient
from controller.slurm.scontrol.run import Completed, ProcessRunner
from controller.slurm.time_limit import TimeLimit
from tests.cancellation.leftovers import on_own_loop
from tests.cancellation.points import INJECTED, Cut, Outcome, Point, Points
from tests.unit.controller.slurm.pyslurm.bridge import RUNNING, Bridge
from tests.unit.controller.slurm.pyslurm.fake_pyslurm import FakePySlurm, JobRow
from tests.unit.controller.slurm.scontrol import slurmctld
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

Client = CommandLineClient | PySlurmClient
_NOW_S = SUBMIT_S + 0.97
"""A requeued job that is released waits for the next second."""
_TRIES = 4
_WITHIN_S = 120.0
_WAITS, _RUNS, _USERS, _DEAF = (JobKey(job_id, SUBMIT_S) for job_id in ("7", "8", "9", "10"))
"""Jobs: one that waits, after a requeue; one that runs; one that its user holds; one that Slurm does not change."""
_FREED, _HELD_RUNNING, _TASK = (JobKey(job_id, SUBMIT_S) for job_id in ("11", "12", "13_0"))
"""Jobs: one that runs since its user released it; one that its user has held while it runs; and the task of an array."""


class Beside:
    """Runs a real process before and after each answer of the small slurmctld."""

    def __init__(self, slurm: slurmctld.Slurmctld) -> None:
        self._slurm = slurm
        self._processes = ProcessRunner(bin_dir=None, environment={"PATH": "/usr/bin:/bin"}, timeout_s=60.0)

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        await self._processes.run("true", ())
        answer = await self._slurm.run(program, arguments, stdin)
        await self._processes.run("true", ())
        return answer


class _Slurmctld(slurmctld.Slurmctld):
    """Has fair shares and QOS too."""

    async def run(self, program: str, arguments: Sequence[str], stdin: bytes = b"") -> Completed:
        if program in {"sshare", "sacctmgr"}:
            return Completed((program, *arguments), 0, b"", "")
        return await super().run(program, arguments, stdin)


class _Bridge(_Slurmctld, Bridge):
    """The command line on the slurmctld that pyslurm has."""


class _Thread(WorkerProcess):
    """The worker of pyslurm, with its thread and its time limits, whose calls are made in this process."""

    def __init__(self, module: FakePySlurm) -> None:
        super().__init__({}, timeout_s=60.0)
        self._calls = PySlurmCalls(module)

    def _exchange(self, request: object, limit: TimeLimit) -> tuple[Any, ...]:
        limit.left_s()
        method, arguments = request  # type: ignore[misc]
        return ("done", copy.deepcopy(getattr(self._calls, method)(*arguments)), None)


@dataclass
class _Verb:
    """One call, and what must be true of the jobs, by id, once it has succeeded."""

    name: str
    call: Callable[[Client], Awaitable[object]]
    wanted: Callable[[dict[str, SlurmJob]], bool] = lambda _jobs: True


def _pin(client_job: SlurmJob) -> Pin:
    return Pin(client_job.key, ("n2",), 2, client_job.request)


def _verbs(waits: SlurmJob) -> list[_Verb]:
    """Return the calls; `waits`: the job that waits, with its own request."""
    request = waits.request

    def is_pinned(jobs: dict[str, SlurmJob]) -> bool:
        return jobs["7"].request.required_nodes == ("n2",) and jobs["7"].held

    def has_own_request(jobs: dict[str, SlurmJob]) -> bool:
        return replace(jobs["7"].request, max_nodes=request.max_nodes) == request  # Slurm shows another maximum

    def is_requeued(jobs: dict[str, SlurmJob]) -> bool:
        stopped = [jobs[key.job_id] for key in (_RUNS, _FREED, _HELD_RUNNING)]
        return all((job.phase, job.restarts, job.held) == (Phase.COMPLETING, 1, True) for job in stopped) and (
            [job.marks for job in stopped] == [{HOLD_MARK}, {HOLD_MARK}, {USER_HOLD_MARK}]
        )

    return [
        _Verb("facts", lambda client: client.facts()),
        _Verb("topology", lambda client: client.topology()),
        _Verb("shares", lambda client: client.shares()),
        _Verb("snapshot", lambda client: client.snapshot()),
        _Verb("unregistered", lambda client: client.unregistered(["n1", "n2"])),
        _Verb("read", lambda client: client.read([_WAITS, _RUNS])),
        _Verb("read of a task", lambda client: client.read([_TASK])),
        _Verb("hold", lambda client: client.hold([_WAITS, _USERS]), lambda jobs: _is_ours(jobs["7"])),
        _Verb("pin", lambda client: client.pin([_pin(waits)]), is_pinned),
        _Verb("unpin", lambda client: client.unpin({_WAITS: request}), has_own_request),
        _Verb(
            "set_begin_time",
            lambda client: client.set_begin_time([_WAITS], SUBMIT_S + 60),
            lambda jobs: jobs["7"].eligible_time_s == SUBMIT_S + 60,
        ),
        _Verb("release", lambda client: client.release([_WAITS, _USERS]), lambda jobs: not jobs["7"].held),
        _Verb(
            "unmark",
            lambda client: client.unmark([_WAITS], HOLD_MARK, unless_held=True),
            lambda jobs: not jobs["7"].marks,
        ),
        _Verb(
            "mark",
            lambda client: client.mark([_WAITS, _DEAF], USER_HOLD_MARK),
            lambda jobs: USER_HOLD_MARK in jobs["7"].marks,
        ),
        _Verb("signal", lambda client: client.signal([_RUNS], "USR1")),
        _Verb("requeue_hold", lambda client: client.requeue_hold([_RUNS, _FREED, _HELD_RUNNING]), is_requeued),
    ]


def _is_ours(job: SlurmJob) -> bool:
    return job.held and HOLD_MARK in job.marks


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Call every verb of both clients, and cut that await in one of them. A call that was cut is made again."""
    points = Points(at, cut)
    return on_own_loop(points, lambda: _both(points))


async def _both(points: Points) -> Outcome:
    outcome = Outcome(points.reached, done=False, lines=points.lines)
    slurm = _Slurmctld(
        slurmctld.pending(7, restarts="1"),
        slurmctld.running(8),
        slurmctld.held(9, admin_comment=""),
        slurmctld.pending(10),
        slurmctld.running(11, admin_comment=USER_HOLD_MARK),
        slurmctld.running(12, priority="0"),
        slurmctld.pending(13, array="ArrayJobId=13 ArrayTaskId=0 "),
    )
    slurm.deaf = {_DEAF.job_id}
    await _Calls(points, outcome, lambda: CommandLineClient(Beside(slurm), CLOCK, now=lambda: _NOW_S)).all()
    module = FakePySlurm(
        JobRow(id=7, priority=5, state_reason="Priority", requeue_count=1),
        JobRow(**{**RUNNING, "id": 8}),
        JobRow(id=9),
        JobRow(id=10, priority=5, state_reason="Priority"),
        JobRow(**{**RUNNING, "id": 11, "admin_comment": USER_HOLD_MARK}),
        JobRow(**{**RUNNING, "id": 12, "priority": 0}),
        JobRow(id=13, priority=5, state_reason="Priority", array_id=13, array_task_id=0),
    )
    bridge = _Bridge(module)

    def with_pyslurm() -> PySlurmClient:
        return PySlurmClient(_Thread(module), CommandLineClient(Beside(bridge), CLOCK), now=lambda: _NOW_S)

    await _Calls(points, outcome, with_pyslurm).all()
    outcome.done = points.done
    outcome.violations += [f"a task is left: {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
    return outcome


class _Calls:
    """Makes all calls with one client. Another client, of which nothing is cut, shows what the jobs are."""

    def __init__(self, points: Points, outcome: Outcome, client: Callable[[], Client]) -> None:
        self._points, self._outcome = points, outcome
        self._client, self._witness = client(), client()

    async def all(self) -> None:
        """Make each call until it has succeeded."""
        jobs = await self._jobs()
        for verb in _verbs(jobs["7"]):
            await self._until_done(verb)
        await self._client.close()
        await self._witness.close()

    async def _until_done(self, verb: _Verb) -> None:
        name = f"{type(self._client).__name__}.{verb.name}"

        async def check() -> dict[str, SlurmJob]:
            jobs = await self._jobs()
            self._outcome.violations += [f"{name}: {text}" for text in _half_done(jobs)]
            return jobs

        await until_done(name, lambda: verb.call(self._client), self._points, self._outcome, check)
        if not verb.wanted(jobs := await self._jobs()):
            self._outcome.violations.append(f"{name} succeeded, and is not carried out: {jobs}")

    async def _jobs(self) -> dict[str, SlurmJob]:
        return {job.key.job_id: job for job in (await self._witness.snapshot()).jobs}


async def until_done(
    name: str,
    call: Callable[[], Awaitable[object]],
    points: Points,
    outcome: Outcome,
    check: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Make a call, and make it again after it was cut. `check` is awaited after each try."""
    for _ in range(_TRIES):
        task = points.begin(_awaited(call()))
        done, _ = await asyncio.wait({task}, timeout=_WITHIN_S)
        if not done:
            outcome.violations.append(f"{name} did not end within {_WITHIN_S:g} s")
            task.cancel()
            return
        if check is not None:
            await check()
        error = None if task.cancelled() else task.exception()
        if not task.cancelled() and error is None:
            return
        outcome.exits += 1
        if error is not None and not any(word in repr(error) for word in INJECTED):
            outcome.violations.append(f"{name} ended with an error of its own: {error!r}")
    outcome.violations.append(f"{name} does not succeed any more")


async def _awaited(call: Awaitable[object]) -> None:
    await call


def _half_done(jobs: dict[str, SlurmJob]) -> list[str]:
    """Return what no later call would find: a job that is held counts as its user's or an operator's if it has no mark."""
    users = jobs[_USERS.job_id]
    found = [
        f"job {job_id} is held without a mark: {job}"
        for job_id, job in jobs.items()
        if job is not users and job.held and not job.marks and job.phase is not Phase.RUNNING
    ]
    if not users.held or users.marks:
        found.append(f"the job that its user holds was changed: {users}")
    return found
