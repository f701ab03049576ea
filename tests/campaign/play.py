"""Plays one story, and reports the broken promises."""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import structlog

from controller.base.apart import LEFT_OUT
from controller.base.errors import HeadwayError, SlurmError
from controller.slurm.model.job import Phase
from controller.state.journal import Journal
from tests.birthmarks import without_birthmark
from tests.campaign.plot.faults import FAULTS, OF_CALLS, InjectedError
from tests.campaign.plot.operations import OPERATIONS
from tests.campaign.plot.story import Step, Story
from tests.campaign.verdict.model import Expected, Promise, Violation
from tests.campaign.world.cluster import STALE_AFTER_S, Cluster
from tests.campaign.world.processes import Process
from tests.campaign.world.virtual_loop import VirtualLoop

_CALM_S = 60.0
"""Time after all faults have ended, for leases, agents and schedulers to recover."""
_UNCHANGED_S = 600.0
"""A queue in which nothing has changed for so long makes no progress any more."""
_LOOK_EVERY_S = 20.0
_COLLECTIONS = 20
"""Most collections of garbage after a story; the coroutines of killed processes need several."""


@dataclass(slots=True)
class Played:
    """Result of a story."""

    violations: list[Violation]
    operations: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    """Those of the faults that have taken effect: a process may be away, and the call that is to be lost may never come."""
    jobs: int = 0
    virtual_s: float = 0.0
    awaits: int = 0
    """Awaits of controllers, all incarnations."""
    starts: int = 0
    changes: Counter[bool] = field(default_factory=Counter)
    """Starts of jobs that their users had changed: as they were changed (True), or not."""


def play(story: Story) -> Played:
    """Play a story on an event loop of its own. The same story always gives the same result."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="headway-story-", dir=memory if memory.is_dir() else None) as folder:
        loop = VirtualLoop()
        loop.set_task_factory(Process.factory)
        with captured_errors() as errors, quiet(), own_garbage():
            try:
                asyncio.set_event_loop(loop)
                return loop.run_until_complete(_play(story, Path(folder), loop, errors))
            except Exception:  # noqa: BLE001 - it is reported, and the next stories are played
                text = f"the story could not be played to its end: {traceback.format_exc()}"
                return Played([Violation(Promise.NO_BUG, loop.time(), "", text)])
            finally:
                clear(loop)
                asyncio.set_event_loop(None)
                loop.close()


def _carry_out(cluster: Cluster, step: Step) -> None:
    """Carry out a step. The model must know what has happened by now: after a sleep of the machine, jobs may be due to end."""
    cluster.slurm.catch_up()
    if step.verb not in FAULTS:
        OPERATIONS[step.verb](cluster, **step.args)
    elif FAULTS[step.verb](cluster, **step.args):
        cluster.took_effect(step.verb)


async def _play(story: Story, folder: Path, loop: VirtualLoop, errors: list[str]) -> Played:
    LEFT_OUT.forget()  # each kind of error is logged once, and each story is to show its own
    cluster = Cluster(story, folder, loop)
    cluster.checks_answers = True
    faults: Counter[str] = Counter()
    operations = 0
    async with cluster.running():
        await asyncio.sleep(2.0)
        for step in story.steps:
            await asyncio.sleep(step.after_s)
            if step.verb in FAULTS:
                faults[step.verb] += 1
            else:
                operations += 1
            happen = partial(_carry_out, cluster, step)
            cluster.at_await(step.awaits, happen) if step.awaits else happen()
        await _end(cluster)
    model = cluster.model
    for text in dict.fromkeys(errors):
        model.broken(Promise.NO_BUG, "", text)
    for error in cluster.exits:
        if not isinstance(error, HeadwayError):
            model.broken(Promise.NO_BUG, "", "the controller ended: " + "".join(traceback.format_exception(error)))
    return Played(
        violations=model.violations,
        operations=operations,
        faults=faults,
        effects=cluster.effects + _of_calls(cluster),
        jobs=len(model.jobs) + len(model.lost),
        virtual_s=model.time_s,
        awaits=cluster.process.awaits,
        starts=sum(job.runs for job in model.jobs.values()),
        changes=model.changes,
    )


def _of_calls(cluster: Cluster) -> Counter[str]:
    """Return the faults of Slurm's calls that a call has had, by their verbs."""
    taken = cluster.slurm.faults.taken
    return Counter({verb: taken[kind] for verb, kind in OF_CALLS.items()})


async def _end(cluster: Cluster) -> None:
    """End every fault, let users release the jobs that they hold, and check that every job ends."""
    await asyncio.sleep(_CALM_S)
    _mend(cluster)
    await asyncio.sleep(_CALM_S)
    if not cluster.lease_is_fresh:
        cluster.model.broken(
            Promise.LEASE, "", f"the lease is older than {STALE_AFTER_S:g} s, {_CALM_S:g} s after all faults have ended"
        )
    await _until_still(cluster, lambda job: not _waits_for_a_user(cluster, job))
    for job_id in list(cluster.model.jobs):
        _give_back(cluster, job_id)
    await _until_still(cluster, lambda job: True)
    for job in cluster.model.jobs.values():
        if job.ended:
            cluster.model.check_end(job)
        elif not job.never:
            found = cluster.find(job.job_id)
            state = (
                "is gone from Slurm" if found is None else f"is {found.state} ({found.reason}, {found.admin_comment!r})"
            )
            cluster.model.broken(Promise.NOT_HELD_FOR_EVER, job.job_id, state)
    _check_tasks(cluster)
    await _check_journal(cluster)


def _check_tasks(cluster: Cluster) -> None:
    """Check that every background task of the controller runs."""
    if cluster.controller is None or cluster.process.ended:
        return
    for name in cluster.controller.tasks.failures:
        if not cluster.process.runs(name):
            cluster.model.broken(Promise.TASKS, "", f"{name} has ended")


def _mend(cluster: Cluster) -> None:
    cluster.process.cont()
    cluster.watchdog.cont()
    if cluster.watchdog.main is not None:  # runs of other tests have none
        cluster.start_watchdog()
    cluster.limit_journal(full=False)
    cluster.slow_journal(0.0)
    cluster.restart_in(0.0)
    for server in cluster.servers.values():
        server.mood = "well"
        server.cont()
    cluster.slurm.set_partition(cluster.story.partition, up=True)
    for node in cluster.fleet.nodes:
        cluster.slurm.node_resume(node)
        cluster.fleet.cont(node)
    for job in cluster.model.jobs.values():
        with suppress(SlurmError):
            cluster.slurm.resume(job.job_id)
        _note_never(cluster, job)


def _note_never(cluster: Cluster, job: Expected) -> None:
    """Note a job whose dependency has failed: Slurm leaves it pending (DependencyNeverSatisfied)."""
    for kind, label in job.spec.after:
        for job_id in cluster.named_by_dependencies_on(label):
            on = cluster.model.jobs[job_id]
            bad = on.cancelled_s is not None or on.spec.exit_code or on.spec.time_limit_s is not None
            if on.never or (kind == "afterok" and (bad or not on.spec.requeue or on.spec.preemptible)):
                job.never = True
        if not cluster.jobs_of(label):
            job.never = True


def _give_back(cluster: Cluster, job_id: str) -> None:
    """Let the job's user release it, or the operator, if Slurm itself or an operator holds it."""
    expected = cluster.model.jobs[job_id]
    found = cluster.find(job_id)
    if expected.ended or found is None or found.phase is not Phase.PENDING:
        return
    if expected.held_by_user_s is not None:
        try:
            cluster.slurm.user_release(job_id)
            cluster.model.released(job_id)
        except SlurmError as error:
            cluster.model.broken(Promise.NOT_HELD_FOR_EVER, job_id, f"its user cannot release it: {error}")
    elif found.held and "headway:" not in without_birthmark(found.admin_comment):
        with suppress(SlurmError):
            cluster.slurm.admin_release(job_id)


def _waits_for_a_user(cluster: Cluster, job: Expected) -> bool:
    """Return whether its user holds the job, or one that it depends on: it can only run once that is released."""
    if job.held_by_user_s is not None:
        return True
    before = [
        cluster.model.jobs[job_id] for _, label in job.spec.after for job_id in cluster.named_by_dependencies_on(label)
    ]
    return any(not each.ended and _waits_for_a_user(cluster, each) for each in before)


async def _until_still(cluster: Cluster, concerns: Any) -> None:
    """Wait until all jobs for which `concerns` is true have ended, or nothing has changed for a long time."""
    last_s, before = cluster.model.time_s, -1
    while cluster.model.time_s - last_s < _UNCHANGED_S:
        left = [job for job in cluster.model.jobs.values() if not job.ended and not job.never and concerns(job)]
        if not left:
            return
        done = sum(job.runs + (1 if job.ended else 0) for job in cluster.model.jobs.values())
        if done != before or any(job.running for job in left):
            before, last_s = done, cluster.model.time_s
        await asyncio.sleep(_LOOK_EVERY_S)


async def _check_journal(cluster: Cluster) -> None:
    """Check that a controller that is stopped leaves a journal that the next one can open unchanged."""
    controller = cluster.controller
    if controller is None:
        return
    cluster.restart_in(1e9)
    controller.stop()
    main = cluster.process.main
    if main is not None:
        await asyncio.wait({main}, timeout=60.0)
        if not main.done():
            cluster.model.broken(Promise.NO_BUG, "", "the controller did not end within 60 s of SIGTERM")
            return
    cluster.note_exit()
    journal = Journal(cluster.settings.journal_path)
    if journal._file.notices:
        cluster.model.broken(Promise.JOURNAL, "", "; ".join(journal._file.notices))
    journal.close()


@contextmanager
def captured_errors() -> Iterator[list[str]]:
    """Collect the errors that Headway logs with a traceback: they are defects of its own."""
    found: list[str] = []

    def capture(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        info = event.get("exc_info")
        if info:
            error = sys.exc_info()[1] if info is True else info
            if isinstance(error, InjectedError):
                raise structlog.DropEvent
            trace = "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else str(error)
            found.append(f"{event.get('event')}: {trace}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[capture], cache_logger_on_first_use=False)
    try:
        yield found
    finally:
        structlog.configure(**before)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Python's warnings about coroutines that were never resumed; they are expected here."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


@cache
def _is_frozen() -> bool:
    """Return whether the process had frozen objects before its first story: each story leaves that as it was.

    With all modules of the tests, Python takes 60 ms to count them, an eighth of a story.
    """
    return gc.get_freeze_count() > 0


@contextmanager
def own_garbage() -> Iterator[None]:
    """Collect the story's objects at its end, and no others in between.

    It is collected within `quiet`: coroutines of killed processes refuse to end (their `finally` awaits again), and
    Python would print that. Each controller that starts collects everything once; modules and tests are much more than
    the story, and are left out. A killed controller does not switch the collector on again, so that is done here.
    """
    was_on, frozen = gc.isenabled(), _is_frozen()
    gc.freeze()
    try:
        yield
    finally:
        left = _COLLECTIONS
        while (
            left and gc.collect()
        ):  # a coroutine that refuses to end keeps what it refers to until the next collection
            left -= 1
        if not frozen:
            gc.unfreeze()
        if was_on:
            gc.enable()


def clear(loop: VirtualLoop) -> None:
    """End what is left of the processes, without carrying out any of it."""
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
