"""Two scripted runs of the controller on the emulated Slurm, in virtual time, with one await cut.

In the first one Slurm takes every order. In the second one it refuses some, or does not answer, and users change their minds.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from controller.base.errors import HeadwayError, SlurmError
from tests.campaign.play import _end, captured_errors
from tests.campaign.plot import faults, operations
from tests.campaign.plot.story import JobSpec, Story
from tests.campaign.verdict.model import Promise
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.policy import StoryEndpoint
from tests.campaign.world.processes import _CURRENT, Process
from tests.campaign.world.virtual_loop import VirtualLoop
from tests.cancellation.leftovers import complaint, held, left_behind, named_tasks
from tests.cancellation.points import INJECTED, Cut, InjectedError, InjectedOSError, Outcome, Point, Points

Script = Callable[[Cluster], Coroutine[Any, Any, None]]
_REFUSED = "Requested node configuration is not available"
TASKS = {"controller", "learn", "lease", "preemptions", "reports"}
"""Tasks of a controller in these runs."""


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Run the first script, and cut that await."""
    return _play(_script, at, cut)


def run_refusals(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Run the second script, and cut that await."""
    return _play(_refusals, at, cut)


def _play(script: Script, at: Point | None, cut: Cut) -> Outcome:
    """Run a script on an event loop of its own, and cut that await."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="headway-cut-", dir=memory if memory.is_dir() else None) as folder:
        before = held()
        loop = VirtualLoop()
        points = Points(at, cut)
        loop.set_task_factory(_factory(points))
        complaints: list[str] = []
        loop.set_exception_handler(lambda _loop, context: complaints.append(complaint(context)))
        with captured_errors() as errors, patch.object(StoryEndpoint, "close", _close):
            try:
                asyncio.set_event_loop(loop)
                outcome = loop.run_until_complete(_run(script, Path(folder), loop, points, errors))
                gc.collect()
                loop.run_until_complete(asyncio.sleep(0.1))
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                asyncio.set_event_loop(None)
                loop.close()
        gc.collect()
    outcome.violations += complaints
    outcome.violations += left_behind(before, ended=outcome.exits > 0)
    return outcome


def _factory(points: Points) -> Any:
    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        context: contextvars.Context | None = options.get("context")
        process = _CURRENT.get() if context is None else context.get(_CURRENT)
        if process is not None and process.name == "controller":
            coro = points.wrap(coro)
        return Process.factory(loop, coro, **options)

    return factory


async def _run(script: Script, folder: Path, loop: VirtualLoop, points: Points, errors: list[str]) -> Outcome:
    cluster = Cluster(Story(0, nodes=3, gpus=4, policy="las", preemption=True, steps=()), folder, loop)
    async with cluster.running(watchdog=False):
        await script(cluster)
        points.counting = False
        await asyncio.sleep(3.0)
        outcome = Outcome(points.reached, points.done, lines=points.lines)
        alive = named_tasks()
        outcome.violations += [f"{alive[name]} tasks {name} are alive" for name in sorted(TASKS) if alive[name] != 1]
        cluster.note_exit()
        outcome.exits = len(cluster.exits)
        if len(cluster._dead) - 1 > outcome.exits:  # the first is the place of none
            outcome.violations.append("the controller ended with status 0, though nobody stopped it")
        await _end(cluster)
    cluster._close_wake()
    for text in dict.fromkeys(errors):
        if not any(word in text for word in INJECTED):
            cluster.model.broken(Promise.NO_BUG, "", text)
    outcome.violations += map(str, cluster.model.violations)
    outcome.violations += [f"a task is left: {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
    return outcome


async def _script(cluster: Cluster) -> None:
    """Jobs are placed, preempted and held; the policy is swapped; the settings are read again."""
    await asyncio.sleep(2.0)
    cluster.submit(JobSpec(0, duration_s=30.0, gpus_per_node=4, nodes=2, trains=True))
    cluster.submit(JobSpec(1, duration_s=20.0, gpus_per_node=2))
    await asyncio.sleep(4.0)
    cluster.submit(JobSpec(2, duration_s=10.0, gpus_per_node=4, array=2))
    cluster.submit(JobSpec(3, duration_s=10.0, hold=True))
    await asyncio.sleep(3.0)
    operations.user_hold(cluster, 2, task=1)
    cluster.process.spawn(_swap(cluster, "srtf"))
    await asyncio.sleep(3.0)
    operations.preempt(cluster, 0, avoid=["n1"])
    await asyncio.sleep(5.0)
    operations.reload_settings(cluster, poll_interval_s=3.0)
    operations.user_release(cluster, 2, task=1)
    await asyncio.sleep(8.0)
    operations.cancel(cluster, 1)
    await asyncio.sleep(4.0)


async def _refusals(cluster: Cluster) -> None:
    """Slurm refuses pins, releases and starts, and loses calls; jobs are resized, stopped, held and changed; the policy is away."""
    slurm = cluster.slurm.faults
    await asyncio.sleep(2.0)
    cluster.submit(JobSpec(0, duration_s=60.0, gpus_per_node=2, trains=True, preemptible=True))
    cluster.submit(JobSpec(1, duration_s=40.0, gpus_per_node=2, preemptible=True))
    await asyncio.sleep(4.0)
    for _ in range(3):
        slurm.refuse_next("pin", _REFUSED)
    cluster.submit(JobSpec(2, duration_s=5.0, gpus_per_node=2))
    await asyncio.sleep(8.0)
    slurm.refuse_next("release", _REFUSED)
    cluster.submit(JobSpec(3, duration_s=5.0, gpus_per_node=2))
    cluster.submit(JobSpec(4, duration_s=5.0, gpus_per_node=1, free_choice_only=True))
    await asyncio.sleep(3.0)
    operations.preempt(cluster, 0, gpus=1)
    operations.preempt(cluster, 1)
    slurm.lose_reply("pin")
    cluster.submit(JobSpec(5, duration_s=30.0, gpus_per_node=4, nodes=3))
    cluster.submit(JobSpec(6, duration_s=5.0, gpus_per_node=1))
    await asyncio.sleep(3.0)
    operations.user_hold(cluster, 5)
    slurm.lose_request("unmark")
    slurm.slow("release", 2.0)
    cluster.submit(JobSpec(8, duration_s=5.0, gpus_per_node=1, unfit=("n1", "n2")))
    await asyncio.sleep(1.0)
    operations.user_hold(cluster, 8)
    await asyncio.sleep(3.0)
    slurm.slow("release", 0.0)
    faults.policy_fails(cluster, "away", 4.0)
    cluster.submit(JobSpec(7, duration_s=5.0, gpus_per_node=1))
    await asyncio.sleep(5.0)
    cluster.slurm.crash_slurmctld(away_s=1.0)
    operations.user_release(cluster, 5)
    faults.slurmctld_away(cluster, 4.0)
    await asyncio.sleep(4.0)
    operations.user_release(cluster, 8)
    await asyncio.sleep(15.0)
    cluster.submit(JobSpec(9, duration_s=5.0, gpus_per_node=1, unfit=("n1", "n2")))
    await asyncio.sleep(3.0)
    with suppress(SlurmError):  # it runs already, after some errors
        cluster.slurm.update(cluster.jobs_of(9)[0], ExcNodeList="n1,n2")
    await asyncio.sleep(25.0)


_close_at_once = StoryEndpoint.close


async def _close(endpoint: StoryEndpoint) -> None:
    """Close the connection as gRPC does: it takes a turn of the event loop."""
    await asyncio.sleep(0)
    await _close_at_once(endpoint)


async def _swap(cluster: Cluster, name: str) -> None:
    """`headway policy use`, as a request handler carries it out: the handler's caller gets the error."""
    if cluster.controller is None or cluster.process.ended:
        return
    try:
        await cluster.controller.use_policy(f"story:{name}")
    except (HeadwayError, InjectedError, InjectedOSError):
        return
    cluster.current_policy = name
