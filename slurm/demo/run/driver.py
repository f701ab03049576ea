"""Run the mix once: submit each script at its time, and view the cluster once a second."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slurm.demo.display.history import History, RunResult
from slurm.demo.display.screen import Frame, Screen
from slurm.demo.display.view import ClusterView, JobView, Stage
from slurm.demo.errors import DemoError
from slurm.demo.workload import Training

_LOOK_EVERY_S = 1.0


class World(Protocol):
    """A cluster to which jobs are submitted, and that can be viewed."""

    scheduler: str
    """Name of the scheduler, in a few words."""
    rate_mbps: float | None
    """Bandwidth of a NIC; None when there are no NICs."""

    def submit(self, training: Training) -> None:
        """Submit one script. Raises DemoError or MiniClusterError."""

    def look(self) -> ClusterView:
        """Return the current view of the cluster."""

    def reason(self, job: JobView) -> str:
        """Return the reason for the placement of a job that has started; "" when there is none."""

    def end_of_log(self, label: str) -> str:
        """Return the end of the log of a job that failed."""

    def step_ms(self) -> Mapping[str, float]:
        """Return job label → mean time of a training step, for jobs that reported one."""


class Timer(Protocol):
    """Clock of the driver."""

    def now(self) -> float:
        """Return seconds since any fixed time."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class MonotonicTimer:
    """The monotonic clock of the machine."""

    def now(self) -> float:
        """Return seconds since the boot of the machine."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the mix on one cluster."""

    title: str
    world: World
    mix: Sequence[Training]
    limit_s: float
    """Longest time for the run."""


def drive(run: Run, screen: Screen, timer: Timer) -> RunResult:
    """Submit, view and show until every job has ended. Raises DemoError when that takes too long."""
    history = History(run.mix)
    due = sorted(run.mix, key=lambda training: training.submit_at_s)
    begun_s = timer.now()
    try:
        while not history.all_ended:
            elapsed_s = timer.now() - begun_s
            _require_time(run, history, elapsed_s)
            while due and due[0].submit_at_s <= elapsed_s:
                run.world.submit(due.pop(0))
            view = run.world.look()
            for job in history.update(view):
                if job.stage is Stage.RUNNING and (why := run.world.reason(job)):
                    history.explain(job.label, why)
            elapsed_s = timer.now() - begun_s
            screen.show(_frame(run, history, view, elapsed_s))
            next_s = min(elapsed_s + _LOOK_EVERY_S, due[0].submit_at_s if due else float("inf"))
            timer.sleep(max(next_s - elapsed_s, 0.0))
    finally:
        screen.close()
    for job in history.jobs.values():
        if why := run.world.reason(job):  # also for jobs that started and ended between two views
            history.explain(job.label, why)
    return history.result(run.world.scheduler, run.world.step_ms())


def _require_time(run: Run, history: History, elapsed_s: float) -> None:
    if elapsed_s <= run.limit_s:
        return
    late = ", ".join(f"{job.label} ({job.stage.value})" for job in history.jobs.values() if not job.stage.ended)
    raise DemoError(
        f"{run.world.scheduler}: jobs have not ended after {run.limit_s:g} s: {late}; the machine may be too busy, try another one"
    )


def _frame(run: Run, history: History, view: ClusterView, elapsed_s: float) -> Frame:
    return Frame(
        title=run.title,
        scheduler=run.world.scheduler,
        elapsed_s=elapsed_s,
        requests={label: history.request(label) for label in history.jobs},
        jobs=history.jobs,
        view=view,
        rate_mbps=run.world.rate_mbps,
    )
