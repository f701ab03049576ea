"""What the jobs of this node told of themselves: pure state, told of connections and frames with their times.

Invariants: a process is filed under the job that the kernel names, whatever it says; a job that was started again under
its id (its restart count rose) is a new run, and nothing of the run before is left in its row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from nodeagent.identity.peer import JobProcess
from nodeagent.identity.procfs import started_ns
from nodeagent.jobsocket.throughput import StepThroughput
from nodeagent.wire.bounds import MAX_STEPS
from nodeagent.wire.frames import Bye, Checkpoint, Frame, Hello, Model, Profile, Steps
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.report import CheckpointReport, JobReport, ProcessState, RankReport

_MAX_CLAIMS = 8
_NOT_KNOWN = -1


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """A connected process that trains."""

    connection: int
    key: tuple[int, int]
    """Names the process for as long as the node is up."""
    rank: int
    """-1 = not known."""
    checkpoint: Checkpoint | None
    """None = it has called headway_job.checkpoint nowhere."""


@dataclass(slots=True)
class _Process:
    """One connection."""

    process: JobProcess
    pace: StepThroughput
    opened_ns: int
    hello: Hello | None = None
    model: Model | None = None
    profile: Profile | None = None
    steps: Steps | None = None
    checkpoint: Checkpoint | None = None
    state: ProcessState = "connected"
    closed_ns: int = 0
    said_bye: bool = False

    @property
    def rank(self) -> int:
        return self.hello.rank if self.hello is not None else _NOT_KNOWN

    @property
    def key(self) -> tuple[int, int]:
        """Names the process for as long as the node is up."""
        return self.process.pid, self.process.start_ticks

    @property
    def order(self) -> tuple[bool, int, int]:
        """Known ranks first, lowest first."""
        return (self.rank < 0, self.rank, self.process.pid)


@dataclass(slots=True)
class _Run:
    """One run of one job on this node."""

    job_id: int
    uid: int
    restart: int
    first_seen_ns: int
    processes: dict[int, _Process] = field(default_factory=dict)
    gone: Counter[ProcessState] = field(default_factory=Counter)
    claims: set[str] = field(default_factory=set)
    program: set[tuple[int, int]] = field(default_factory=set)
    """Processes (pid, start) that have stepped in the program that the run is at; one that connects anew is in it still."""
    base_steps: int = 0
    """Steps of programs of this run before that one."""
    most_steps: int = 0
    started_ns: int | None = None
    """Of the first process that trains."""
    loaded_ns: int | None = None
    first_step_ns: int | None = None
    left_ns: int = 0
    """When the last connection closed; 0 = there are some."""


class JobRegistry:
    """All jobs of this node that have a process connected, or had within the last window."""

    def __init__(self, window_s: float = 60.0, interval_s: float = 1.0) -> None:
        """`interval_s` is how often processes are asked for their steps."""
        self.changed: Callable[[int], None] = lambda _job_id: None
        """Is told of a job of which there is news that the controller waits for: how it can come back, its first step."""
        self._window_s = window_s
        self._interval_s = interval_s
        self._keep_ns = round(window_s * 1e9)
        self._runs: dict[int, _Run] = {}
        self._waiting: dict[int, _Process] = {}
        """Connected, and no hello yet: which run they belong to is not known."""
        self._of: dict[int, _Run] = {}
        self._guard = RowGuard("rows of jobs")

    # ---- being told

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """A process has connected."""
        self._waiting[connection] = _Process(process, StepThroughput(self._window_s, self._interval_s), now_ns)

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """A frame of a connection that is open."""
        if isinstance(frame, Hello):
            self._greeted(connection, frame, now_ns)
            return
        run = self._of.get(connection)
        if run is None:  # of a run that is over, or before its hello
            return
        process = run.processes[connection]
        match frame:
            case Model():
                process.model = frame
            case Profile():
                process.profile = frame
            case Steps():
                self._stepped(run, process, frame, now_ns)
            case Checkpoint():
                self._can_come_back(run, process, frame)
            case Bye():
                process.said_bye = True

    def closed(self, connection: int, now_ns: int) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
        run = self._of.pop(connection, None)
        if run is None:
            return
        _count_steps(run)
        process = run.processes[connection]
        process.state = "ended" if process.said_bye else "lost"
        process.closed_ns = now_ns
        run.gone[process.state] += 1
        if not any(other.state == "connected" for other in run.processes.values()):
            run.left_ns = now_ns

    # ---- telling

    def snapshot(self, now_ns: int) -> tuple[JobReport, ...]:
        """A row per job, by id. Forgets what has been away for longer than the window."""
        self._forget(now_ns)
        runs = [run for _job_id, run in sorted(self._runs.items())]
        return tuple(row for _run, row in self._guard.each(runs, lambda run: self._row(run, now_ns)))

    def row(self, job_id: int, now_ns: int) -> JobReport | None:
        """The row of one job; None: nobody of it reports."""
        run = self._runs.get(job_id)
        return None if run is None else self._row(run, now_ns)

    def trainers(self, job_id: int, restart: int) -> tuple[TrainingProcess, ...]:
        """Of that run of the job, by rank."""
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
            if process.state == "connected" and (process.steps or process.checkpoint)
        ]
        return tuple(sorted(found, key=lambda trainer: (trainer.rank, trainer.connection)))

    def job_of(self, connection: int) -> int | None:
        """The job of a process that is connected and has said hello."""
        run = self._of.get(connection)
        return None if run is None else run.job_id

    def stepping(self, job_id: int) -> tuple[int, ...]:
        """Connections of that job's processes that step, by rank: those worth profiling."""
        return self._connections(job_id, lambda process: process.steps is not None)

    def connected(self, job_id: int) -> tuple[int, ...]:
        """All connections of that job, by rank."""
        return self._connections(job_id, lambda _process: True)

    def processes(self) -> tuple[JobProcess, ...]:
        """Every process that is connected and has said hello."""
        return tuple(
            process.process
            for run in self._runs.values()
            for process in run.processes.values()
            if process.state == "connected"
        )

    def is_contained(self, job_id: int) -> bool:
        """Whether its processes were found by cgroup: then the job is over when its cgroup is gone."""
        run = self._runs.get(job_id)
        return run is not None and all(process.process.source == "cgroup" for process in run.processes.values())

    def forget(self, job_id: int) -> None:
        """Nothing of that job is left on this node."""
        run = self._runs.pop(job_id, None)
        for connection in run.processes if run is not None else ():
            self._of.pop(connection, None)

    # ---- inside

    def _greeted(self, connection: int, hello: Hello, now_ns: int) -> None:
        run = self._of.get(connection)
        if run is not None:  # it says more by now: its rank, once the process group is there
            run.processes[connection].hello = hello
            _note_claim(run, hello)
            return
        process = self._waiting.pop(connection, None)
        if process is None:
            return
        process.hello = hello
        run = self._run_of(process, hello, now_ns)
        if run is None:
            return
        _forget_earlier(run, process)
        run.processes[connection] = process
        run.left_ns = 0
        self._of[connection] = run
        _note_claim(run, hello)

    def _run_of(self, process: _Process, hello: Hello, now_ns: int) -> _Run | None:
        """Its run, made if new; None for a process left over from a run before the newest."""
        job_id = process.process.job_id
        run = self._runs.get(job_id)
        if run is not None and hello.restart < run.restart:
            return None
        if run is None or hello.restart > run.restart or run.uid != process.process.uid:
            if run is not None:
                for connection in run.processes:
                    self._of.pop(connection, None)
            run = self._runs[job_id] = _Run(job_id, process.process.uid, hello.restart, process.opened_ns or now_ns)
        return run

    def _stepped(self, run: _Run, process: _Process, frame: Steps, now_ns: int) -> None:
        if frame.last_ns > now_ns or not process.pace.told(frame):  # a step that has not been yet says nothing
            return
        if process.steps is None and process.key not in run.program:
            if not any(_stepping(run)):  # another program of the same run: its steps come on top
                run.program.clear()
                run.base_steps = run.most_steps
            run.program.add(process.key)
        process.steps = frame
        _note_start(run, process)
        if run.first_step_ns is None:
            self.changed(run.job_id)
        run.first_step_ns = min(run.first_step_ns or frame.first_ns, frame.first_ns)

    def _can_come_back(self, run: _Run, process: _Process, frame: Checkpoint) -> None:
        before, process.checkpoint = process.checkpoint, frame
        _note_start(run, process)
        if before is None or replace(before, seq=frame.seq) != frame:
            self.changed(run.job_id)

    def _forget(self, now_ns: int) -> None:
        for job_id, run in list(self._runs.items()):
            for connection, process in list(run.processes.items()):
                if process.state != "connected" and now_ns - process.closed_ns > self._keep_ns:
                    del run.processes[connection]
            if run.left_ns and now_ns - run.left_ns > self._keep_ns:
                del self._runs[job_id]

    def _connections(self, job_id: int, wanted: Callable[[_Process], bool]) -> tuple[int, ...]:
        run = self._runs.get(job_id)
        found = [] if run is None else [item for item in run.processes.items() if item[1].state == "connected"]
        return tuple(number for number, process in sorted(found, key=lambda item: item[1].order) if wanted(process))

    def _row(self, run: _Run, now_ns: int) -> JobReport:
        by_rank = sorted(run.processes.values(), key=lambda process: process.order)
        stepping = sorted(_stepping(run), key=lambda process: process.order)
        first = next(iter(stepping or by_rank), None)
        hello = first.hello if first is not None else None
        paces = [pace for process in stepping if (pace := process.pace.steps_per_s(now_ns)) is not None]
        return JobReport(
            job_id=run.job_id,
            uid=run.uid,
            restart=run.restart,
            first_seen_ns=run.first_seen_ns,
            steps=_count_steps(run),
            steps_per_s=min(paces, default=None),
            last_step_ns=min((process.steps.last_ns for process in stepping if process.steps), default=None),
            world_size=None if hello is None or hello.world_size < 1 else hello.world_size,
            device=hello.device if hello else None,
            torch=hello.torch if hello else None,
            script=hello.script if hello else None,
            model=next((process.model for process in by_rank if process.model is not None), None),
            profile=next((process.profile for process in by_rank if process.profile is not None), None),
            ranks=tuple(_rank(process, now_ns) for process in by_rank if process.steps is not None),
            num_connected=sum(process.state == "connected" for process in by_rank),
            num_ended=run.gone["ended"],
            num_lost=run.gone["lost"],
            claimed_job_ids=tuple(sorted(run.claims)),
            checkpoint=_checkpoint(by_rank),
            started_ns=run.started_ns,
            loaded_ns=run.loaded_ns,
            first_step_ns=run.first_step_ns,
        )


def _stepping(run: _Run) -> Iterable[_Process]:
    return (process for process in run.processes.values() if process.state == "connected" and process.steps)


def _count_steps(run: _Run) -> int | None:
    """Steps of the slowest rank. They never fall within a run, so that a row that was lost costs nothing; and programs that run one
    after the other add theirs up to MAX_STEPS at the most, whatever they say."""
    steps = [process.steps.steps for process in _stepping(run) if process.steps is not None]
    if steps:
        run.most_steps = max(run.most_steps, min(run.base_steps + min(steps), MAX_STEPS))
    return run.most_steps or None


def _forget_earlier(run: _Run, process: _Process) -> None:
    """A process that connects anew was not lost after all."""
    for connection, earlier in list(run.processes.items()):
        if earlier.key == process.key and earlier.state != "connected":
            run.gone[earlier.state] -= 1
            del run.processes[connection]


def _note_start(run: _Run, process: _Process) -> None:
    """The first process of the run that trains says when it began."""
    if run.started_ns is None:
        run.started_ns = started_ns(process.process.start_ticks)
        loaded_ns = process.hello.loaded_ns if process.hello is not None else 0
        run.loaded_ns = loaded_ns if run.started_ns <= loaded_ns <= process.opened_ns else None  # then it connected


def _checkpoint(by_rank: Iterable[_Process]) -> CheckpointReport | None:
    told = [one.checkpoint for one in by_rank if one.state == "connected" and one.checkpoint is not None]
    if not told:
        return None
    saved = max(one.saved for one in told)
    return CheckpointReport(
        ranks=tuple(sorted({one.rank for one in told if one.open})),
        restored_step=min(told, key=lambda one: one.rank).start or None,
        saved_step=saved if saved >= 0 else None,
        saving=any(one.saving for one in told),
    )


def _note_claim(run: _Run, hello: Hello) -> None:
    if hello.job_id not in {str(run.job_id), str(_NOT_KNOWN), ""} and len(run.claims) < _MAX_CLAIMS:
        run.claims.add(hello.job_id)


def _rank(process: _Process, now_ns: int) -> RankReport:
    hello, steps = process.hello, process.steps
    connected = process.state == "connected"
    return RankReport(
        pid=process.process.pid,
        step_id=process.process.step_id,
        rank=process.rank,
        local_rank=hello.local_rank if hello else _NOT_KNOWN,
        world_size=hello.world_size if hello else _NOT_KNOWN,
        state=process.state,
        steps=steps.steps if steps else 0,
        first_ns=steps.first_ns if steps else None,
        last_ns=steps.last_ns if steps else None,
        steps_per_s=process.pace.steps_per_s(now_ns) if connected else None,
        profile=process.profile,
    )
