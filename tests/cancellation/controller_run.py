"""A scripted run of the controller on the emulated Slurm, in virtual time, with one await cut."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controller.base.errors import HeadwayError
from tests.campaign.play import _end, captured_errors
from tests.campaign.plot import operations
from tests.campaign.plot.story import JobSpec, Story
from tests.campaign.verdict.model import Promise
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.processes import _CURRENT, Process
from tests.campaign.world.virtual_loop import VirtualLoop
from tests.cancellation.leftovers import complaint, held, left_behind, named_tasks
from tests.cancellation.points import INJECTED, Cut, InjectedError, InjectedOSError, Point, Points

TASKS = {"controller", "learn", "lease", "preemptions", "reports"}
"""Tasks of a controller in these runs."""


@dataclass(slots=True)
class Outcome:
    """Result of one run."""

    reached: list[Point]
    done: bool
    """The await was reached, and cut."""
    exits: int = 0
    """How often the program ended by itself."""
    violations: list[str] = field(default_factory=list)


def run(at: Point | None = None, cut: Cut = Cut.CANCELLED) -> Outcome:
    """Run the script on an event loop of its own, and cut that await."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="headway-cut-", dir=memory if memory.is_dir() else None) as folder:
        before = held()
        loop = VirtualLoop()
        points = Points(at, cut)
        loop.set_task_factory(_factory(points))
        complaints: list[str] = []
        loop.set_exception_handler(lambda _loop, context: complaints.append(complaint(context)))
        with captured_errors() as errors:
            try:
                asyncio.set_event_loop(loop)
                outcome = loop.run_until_complete(_run(Path(folder), loop, points, errors))
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


async def _run(folder: Path, loop: VirtualLoop, points: Points, errors: list[str]) -> Outcome:
    cluster = Cluster(Story(0, nodes=3, gpus=4, policy="las", preemption=True, steps=()), folder, loop)
    world = [asyncio.create_task(work) for work in (cluster.slurm.run(), cluster.fleet.report(), cluster.supervise())]
    cluster.start_controller()
    await _script(cluster)
    points.counting = False
    await asyncio.sleep(3.0)
    outcome = Outcome(points.reached, points.done)
    alive = named_tasks()
    outcome.violations += [f"{alive[name]} tasks {name} are alive" for name in sorted(TASKS) if alive[name] != 1]
    cluster.note_exit()
    outcome.exits = len(cluster.exits)
    if len(cluster._dead) - 1 > outcome.exits:  # the first is the place of none
        outcome.violations.append("the controller ended with status 0, though nobody stopped it")
    await _end(cluster)
    for task in world:
        task.cancel()
    await asyncio.gather(*world, return_exceptions=True)
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


async def _swap(cluster: Cluster, name: str) -> None:
    """`headway policy use`, as a request handler carries it out: the handler's caller gets the error."""
    if cluster.controller is None or cluster.process.ended:
        return
    try:
        await cluster.controller.use_policy(f"story:{name}")
    except (HeadwayError, InjectedError, InjectedOSError):
        return
    cluster.current_policy = name
