"""The registry of all jobs whose processes report on this node. Pure state: connections and frames come with their times.

Invariants: a process belongs to the job that the kernel names, whatever the process says; a job that was started again under its
id (its restart count rose) is a new run, and its row holds nothing of the run before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from nodeagent.identity.peer import JobProcess
from nodeagent.jobsocket.job_run import JobRun, ReportingProcess
from nodeagent.jobsocket.throughput import StepThroughput
from nodeagent.wire.frames import Checkpoint, Frame, Hello, Model, NoProfile, Steps
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.report import JobReport

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """A connected process that trains."""

    connection: int
    key: tuple[int, int]
    """Identifies the process for as long as the node is up."""
    rank: int
    """-1 = not known."""
    checkpoint: Checkpoint | None
    """None = it has not called headway_job.checkpoint."""


class JobRegistry:
    """All jobs of this node that have a process connected, or had one within the last window."""

    def __init__(self, window_s: float = 60.0, interval_s: float = 1.0) -> None:
        """`interval_s` is the interval at which processes send their steps."""
        self._on_news: Callable[[int], None] = lambda _job_id: None
        self._window_s = window_s
        self._interval_s = interval_s
        self._keep_ns = round(window_s * 1e9)
        self._runs: dict[int, JobRun] = {}
        """Newest run of each job. Bound: the jobs that have processes here, or had within `window_s`."""
        self._waiting: dict[int, ReportingProcess] = {}
        """Processes that are connected and have not sent a hello: their run is not known.
        Bound: the open connections."""
        self._of: dict[int, JobRun] = {}
        """Run of each connection. Bound: the open connections."""
        self._guard = RowGuard("rows of jobs")

    def subscribe(self, on_news: Callable[[int], None]) -> None:
        """Call `on_news` with the id of each job with news for the controller: its first step, or a change of its checkpoints."""
        self._on_news = on_news

    # ---- events: a Listener

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """A process has connected."""
        throughput = StepThroughput(self._window_s, self._interval_s)
        self._waiting[connection] = ReportingProcess(process, throughput, now_ns)

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """A frame has arrived on an open connection."""
        if isinstance(frame, Hello):
            self._greeted(connection, frame, now_ns)
            return
        run = self._of.get(connection)
        if run is None:  # the run is over, or the process has not sent a hello
            return
        process = run.processes[connection]
        match frame:
            case Steps():
                # A step that ends in the future is not believed.
                if frame.last_ns <= now_ns and process.throughput.add(frame) and run.note_steps(process, frame):
                    self._on_news(run.job_id)
            case Checkpoint():
                self._take_checkpoint(run, process, frame)
            case NoProfile():
                process.take(frame)
                if frame.reason not in run.not_profiled:
                    run.not_profiled.add(frame.reason)
                    log.info("job_not_profiled", job=run.job_id, pid=process.process.pid, reason=frame.reason)
            case Model():
                run.take_model(process, frame)
            case _:
                process.take(frame)

    def closed(self, connection: int, now_ns: int) -> None:
        """The connection was closed."""
        self._waiting.pop(connection, None)
        run = self._of.pop(connection, None)
        if run is not None:
            run.close(connection, now_ns)

    # ---- queries

    def rows(self, now_ns: int) -> tuple[JobReport, ...]:
        """Return a row for each job, by id, and forget jobs that have been away for longer than the window."""
        self._forget_old(now_ns)
        runs = [run for _job_id, run in sorted(self._runs.items())]
        return tuple(row for _run, row in self._guard.each(runs, lambda run: run.report(now_ns)))

    def row(self, job_id: int, now_ns: int) -> JobReport | None:
        """Return the row of one job; None = none of its processes reports."""
        run = self._runs.get(job_id)
        return None if run is None else run.report(now_ns)

    def training_processes(self, job_id: int, restart: int) -> tuple[TrainingProcess, ...]:
        """Return the processes that train in that run of the job, by rank."""
        run = self._runs.get(job_id)
        if run is None or run.restart != restart:
            return ()
        found = [
            TrainingProcess(
                connection,
                process.key,
                process.rank if process.checkpoint is None else process.checkpoint.rank,
                process.checkpoint,
            )
            for connection, process in run.processes.items()
            if process.connected and (process.steps or process.checkpoint)
        ]
        return tuple(sorted(found, key=lambda process: (process.rank, process.connection)))

    def job_of(self, connection: int) -> int | None:
        """Return the job of a connected process that has sent a hello; None = there is no such process."""
        run = self._of.get(connection)
        return None if run is None else run.job_id

    def stepping(self, job_id: int) -> tuple[int, ...]:
        """Return the connections of the job's processes that have stepped, by rank: these can be profiled."""
        return self._connections(job_id, lambda process: process.steps is not None)

    def connected(self, job_id: int) -> tuple[int, ...]:
        """Return all connections of the job, by rank."""
        return self._connections(job_id, lambda _process: True)

    def reporting(self, job_id: int, restart: int) -> tuple[int, ...]:
        """Return the connections of that run's processes that write a report at their end."""
        run = self._runs.get(job_id)
        return () if run is None or run.restart != restart else run.reporting()

    def processes(self) -> tuple[JobProcess, ...]:
        """Return every connected process that has sent a hello."""
        return tuple(
            process.process for run in self._runs.values() for process in run.processes.values() if process.connected
        )

    def is_contained(self, job_id: int) -> bool:
        """Return True if all its processes were identified by cgroup: then the job is over when its cgroup is gone."""
        run = self._runs.get(job_id)
        return run is not None and all(process.process.source == "cgroup" for process in run.processes.values())

    def forget(self, job_id: int) -> None:
        """Forget a job that has ended on this node."""
        self._unfile(self._runs.pop(job_id, None))

    # ---- inside

    def _greeted(self, connection: int, hello: Hello, now_ns: int) -> None:
        run = self._of.get(connection)
        if run is not None:  # a later hello knows more: the rank, once the process group exists
            run.processes[connection].take(hello)
            run.note_claim(hello)
            return
        process = self._waiting.pop(connection, None)
        if process is None:
            return
        process.take(hello)
        run = self._run_of(process, hello, now_ns)
        if run is None:
            return
        run.add(connection, process)
        self._of[connection] = run
        run.note_claim(hello)

    def _run_of(self, process: ReportingProcess, hello: Hello, now_ns: int) -> JobRun | None:
        """Return the run of a process, created if it is new; None for a process left over from an earlier run."""
        job_id, uid = process.process.job_id, process.process.uid
        run = self._runs.get(job_id)
        if run is not None and hello.restart < run.restart:
            return None
        if run is None or hello.restart > run.restart or run.uid != uid:
            self._unfile(run)
            run = self._runs[job_id] = JobRun(job_id, uid, hello.restart, process.opened_ns or now_ns)
        return run

    def _unfile(self, run: JobRun | None) -> None:
        """Ignore what the processes of this run send from now on."""
        for connection in run.processes if run is not None else ():
            self._of.pop(connection, None)

    def _take_checkpoint(self, run: JobRun, process: ReportingProcess, frame: Checkpoint) -> None:
        before = process.checkpoint
        process.take(frame)
        run.note_start(process)
        if before is None or replace(before, seq=frame.seq) != frame:
            self._on_news(run.job_id)

    def _forget_old(self, now_ns: int) -> None:
        for job_id, run in list(self._runs.items()):
            for connection, process in list(run.processes.items()):
                if not process.connected and now_ns - process.closed_ns > self._keep_ns:
                    del run.processes[connection]
            if run.left_ns and now_ns - run.left_ns > self._keep_ns:
                del self._runs[job_id]

    def _connections(self, job_id: int, wanted: Callable[[ReportingProcess], bool]) -> tuple[int, ...]:
        run = self._runs.get(job_id)
        found = [] if run is None else [item for item in run.processes.items() if item[1].connected]
        return tuple(number for number, process in sorted(found, key=lambda item: item[1].order) if wanted(process))
