"""The state of one run of one job on this node, from the frames of its processes, and the row of a report made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from nodeagent.identity.peer import JobProcess
from nodeagent.identity.procfs import started_ns
from nodeagent.jobsocket.older_hooks import of_present_version
from nodeagent.jobsocket.steps_done import StepsDone
from nodeagent.jobsocket.throughput import StepThroughput
from nodeagent.wire.bounds import MAX_STEPS
from nodeagent.wire.frames import Bye, Checkpoint, Frame, Hello, Model, NoProfile, Profile, Steps
from nodeagent.wire.report import CheckpointReport, JobReport, ProcessState, RankReport

_MAX_CLAIMS = 8
_MAX_PROGRAM = 8192
"""Processes of one program that are remembered; beyond that, those that have been gone for a while are not."""
_MAX_CLOSED = 256
"""Processes of one run that are kept after their connection was closed: the newest. A job can begin new ones all the time."""
_MAX_MODELS = 8
"""Models of one run that are kept. The row has one, and one with the longest texts takes 150 kB."""
_NOT_KNOWN = -1


@dataclass(slots=True)
class ReportingProcess:
    """A process that has opened a connection, and the newest frame of each type from it."""

    process: JobProcess
    throughput: StepThroughput
    opened_ns: int
    hello: Hello | None = None
    model: Model | None = None
    profile: Profile | None = None
    no_profile: str = ""
    """Reason of its newest no_profile frame, if no profile has come since."""
    steps: Steps | None = None
    checkpoint: Checkpoint | None = None
    state: ProcessState = "connected"
    closed_ns: int = 0
    said_bye: bool = False

    @property
    def rank(self) -> int:
        """The rank that the process reported; -1 = not known."""
        return self.hello.rank if self.hello is not None else _NOT_KNOWN

    @property
    def key(self) -> tuple[int, int]:
        """Pid and start time: they identify the process for as long as the node is up."""
        return self.process.pid, self.process.start_ticks

    @property
    def order(self) -> tuple[bool, int, int]:
        """Sort key: known ranks first, lowest first."""
        return (self.rank < 0, self.rank, self.process.pid)

    @property
    def connected(self) -> bool:
        """The connection is open."""
        return self.state == "connected"

    def take(self, frame: Frame) -> None:
        """Remember a frame as the newest of its type. The profile of another model than the new one is forgotten."""
        match frame:
            case Hello():
                self.hello = frame
            case Model():
                if not _may_be_same(self.model, frame):
                    self.profile = None
                self.model = frame
            case Profile():
                self.profile, self.no_profile = of_present_version(frame, self.hello, self.model), ""
            case NoProfile():
                self.no_profile = frame.reason
            case Steps():
                self.steps = frame
            case Checkpoint():
                self.checkpoint = frame
            case Bye():
                self.said_bye = True

    def forget_facts(self) -> None:
        """Forget the model, and the profile with it, which could be taken for that of another model."""
        self.model = self.profile = None

    def close(self, now_ns: int) -> None:
        """The connection was closed: the process has ended, or was lost."""
        self.state = "ended" if self.said_bye else "lost"
        self.closed_ns = now_ns
        self.throughput.clear()  # only connected processes have a rate

    def report(self, now_ns: int) -> RankReport:
        """Return the row of this process."""
        hello, steps = self.hello, self.steps
        return RankReport(
            pid=self.process.pid,
            step_id=self.process.step_id,
            rank=self.rank,
            local_rank=hello.local_rank if hello else _NOT_KNOWN,
            world_size=hello.world_size if hello else _NOT_KNOWN,
            state=self.state,
            steps=steps.steps if steps else 0,
            first_ns=steps.first_ns if steps else None,
            last_ns=steps.last_ns if steps else None,
            steps_per_s=self.throughput.steps_per_s(now_ns) if self.connected else None,
            profile=self.profile,
            no_profile=self.no_profile,
        )


@dataclass(slots=True)
class JobRun:
    """One run of one job on this node.

    Invariant: the number of steps never falls, and is at most MAX_STEPS, whatever the processes report; the memory that it takes is
    bounded, however many processes come and go.
    """

    job_id: int
    uid: int
    restart: int
    first_seen_ns: int
    """Time at which the first process of the present program connected; of the run, before its first step.
    Invariant: each program has a later one than those before."""
    processes: dict[int, ReportingProcess] = field(default_factory=dict)
    """Connection → process.
    Bound: the open connections, and `_MAX_CLOSED` closed within the registry's window; `_MAX_MODELS` of them have a model."""
    gone: Counter[ProcessState] = field(default_factory=Counter)
    """Numbers of processes that were closed, by their last state. Bound: the states."""
    not_profiled: set[str] = field(default_factory=set)
    """Reasons why its processes have taken no profile, as far as they are logged. Bound: the reasons that `NoProfile` permits."""
    claims: set[str] = field(default_factory=set)
    """Other job ids that its processes claimed. Bound: `_MAX_CLAIMS`."""
    program: set[tuple[int, int]] = field(default_factory=set)
    """Keys of the processes that have stepped in the present program of the run. One that connects again still belongs to it.
    Bound: `_MAX_PROGRAM`, and those in `processes`."""
    base_steps: int = 0
    """Steps of the earlier programs of this run."""
    most_steps: int = 0
    """Steps that all programs of this run have made, also those that were lost and made again."""
    done: StepsDone = field(default_factory=StepsDone)
    """Steps done in the end: `steps_done` of the row."""
    started_ns: int | None = None
    """Start of the first process that trains."""
    loaded_ns: int | None = None
    first_step_ns: int | None = None
    left_ns: int = 0
    """Time at which the last connection was closed; 0 = some are open."""

    def stepping(self) -> list[ReportingProcess]:
        """Connected processes that have stepped."""
        return [process for process in self.processes.values() if process.connected and process.steps]

    def reporting(self) -> tuple[int, ...]:
        """Return the connections of processes that write a report at their end."""
        items = self.processes.items()
        return tuple(
            number for number, each in items if each.connected and each.hello is not None and each.hello.report
        )

    def add(self, connection: int, process: ReportingProcess) -> None:
        """Add a process. One that connects again was not lost after all."""
        for number, earlier in list(self.processes.items()):
            if earlier.key == process.key and not earlier.connected:
                self.gone[earlier.state] -= 1
                del self.processes[number]
        self.processes[connection] = process
        self.left_ns = 0

    def close(self, connection: int, now_ns: int) -> None:
        """The connection of a process was closed."""
        self.count_steps()
        process = self.processes[connection]
        process.close(now_ns)
        self.gone[process.state] += 1
        closed = [number for number, other in self.processes.items() if not other.connected]
        if len(closed) > _MAX_CLOSED:
            del self.processes[min(closed, key=lambda number: self.processes[number].closed_ns)]
        if not any(other.connected for other in self.processes.values()):
            self.left_ns = now_ns

    def take_model(self, process: ReportingProcess, frame: Model) -> None:
        """Remember the model of a process. Of too many, forget that of a process closed long ago, or of the highest rank."""
        process.take(frame)
        having = [each for each in self.processes.values() if each.model is not None]
        if len(having) > _MAX_MODELS:
            least = max(having, key=lambda each: (not each.connected, -each.closed_ns, each.order))
            least.forget_facts()

    def note_claim(self, hello: Hello) -> None:
        """Remember the job id of a hello, if it is not the true one."""
        if hello.job_id not in {str(self.job_id), str(_NOT_KNOWN), ""} and len(self.claims) < _MAX_CLAIMS:
            self.claims.add(hello.job_id)

    def note_steps(self, process: ReportingProcess, frame: Steps) -> bool:
        """Take new steps of a process. Return True if they are the first of this run."""
        if process.steps is None and process.key not in self.program:
            if not self.stepping():
                self._begin_program(process.opened_ns)
            if len(self.program) >= _MAX_PROGRAM:  # a job can begin new processes for months
                self.program.intersection_update(each.key for each in self.processes.values())
            self.program.add(process.key)
        process.take(frame)
        self.note_start(process)
        first = self.first_step_ns is None
        self.first_step_ns = min(self.first_step_ns or frame.first_ns, frame.first_ns)
        return first

    def _begin_program(self, opened_ns: int) -> None:
        """Begin the first program of the run, or another one: its steps are added, and it reports its own model and profile."""
        if self.program:  # by this time the controller tells the two apart: the pause between them is no slow step
            self.first_seen_ns = max(opened_ns, self.first_seen_ns + 1)
        self.program.clear()
        self.base_steps = self.most_steps
        self.done.begin_program()
        for process in self.processes.values():
            if not process.connected:
                process.forget_facts()

    def note_start(self, process: ReportingProcess) -> None:
        """Take the start times of the run from the first process that trains."""
        if self.started_ns is None:
            self.started_ns = started_ns(process.process.start_ticks)
            loaded_ns = process.hello.loaded_ns if process.hello is not None else 0
            # A process loads torch after its start and before it connects; any other time is not believed.
            self.loaded_ns = loaded_ns if self.started_ns <= loaded_ns <= process.opened_ns else None

    def count_steps(self) -> int | None:
        """Return the steps of the slowest rank, over all programs of the run; None = no step yet. A lost row costs nothing."""
        stepping = self.stepping()
        steps = [process.steps.steps for process in stepping if process.steps is not None]
        if steps:
            self.most_steps = max(self.most_steps, min(self.base_steps + min(steps), MAX_STEPS))
            start = _start_step(process.checkpoint for process in stepping)
            self.done.note(start, self.most_steps - self.base_steps)
        return self.most_steps or None

    def report(self, now_ns: int) -> JobReport:
        """Return the row of this run."""
        by_rank = sorted(self.processes.values(), key=lambda process: process.order)
        stepping = [process for process in by_rank if process.connected and process.steps]
        present = stepping or [process for process in by_rank if process.key in self.program] or by_rank
        hello = next((process.hello for process in present), None)
        model = next((process.model for process in present if process.model is not None), None)
        steps = self.count_steps()
        rates = [rate for process in stepping if (rate := process.throughput.steps_per_s(now_ns)) is not None]
        return JobReport(
            job_id=self.job_id,
            uid=self.uid,
            restart=self.restart,
            first_seen_ns=self.first_seen_ns,
            steps=steps,
            steps_done=None if steps is None else self.done.total,
            steps_per_s=min(rates, default=None),
            last_step_ns=min((process.steps.last_ns for process in stepping if process.steps), default=None),
            world_size=None if hello is None or hello.world_size < 1 else hello.world_size,
            device=hello.device if hello else None,
            torch=hello.torch if hello else None,
            script=hello.script if hello else None,
            model=model,
            profile=_profile(present, model),
            ranks=tuple(process.report(now_ns) for process in by_rank if process.steps is not None),
            num_connected=sum(process.connected for process in by_rank),
            num_ended=self.gone["ended"],
            num_lost=self.gone["lost"],
            claimed_job_ids=tuple(sorted(self.claims)),
            report_wanted=bool(self.reporting()),
            checkpoint=_checkpoint(by_rank),
            started_ns=self.started_ns,
            loaded_ns=self.loaded_ns,
            first_step_ns=self.first_step_ns,
        )


def _profile(present: Iterable[ReportingProcess], model: Model | None) -> Profile | None:
    """Return the profile of the lowest rank that has one and trains this model: the two are reported, and stored, together."""
    found = (process for process in present if process.profile is not None and _may_be_same(process.model, model))
    return next((process.profile for process in found), None)


def _may_be_same(one: Model | None, other: Model | None) -> bool:
    """Return False if the two are known to differ, as those of the ranks of a pipeline do."""
    if one is None or other is None:
        return True
    sizes = {one.batch_size, other.batch_size} - {_NOT_KNOWN}
    return one.signature == other.signature and len(sizes) < 2


def _start_step(checkpoints: Iterable[Checkpoint | None]) -> int | None:
    """Return the steps done at the checkpoint from which the lowest rank resumed; 0 = it began anew, None = not known."""
    known = [each for each in checkpoints if each is not None]
    return min(known, key=lambda frame: frame.rank).start if known else None


def _checkpoint(by_rank: Iterable[ReportingProcess]) -> CheckpointReport | None:
    frames = [one.checkpoint for one in by_rank if one.connected and one.checkpoint is not None]
    if not frames:
        return None
    saved = max(frame.saved for frame in frames)
    return CheckpointReport(
        ranks=tuple(sorted({frame.rank for frame in frames if frame.open})),
        restored_step=_start_step(frames) or None,
        saved_step=saved if saved >= 0 else None,
        saving=any(frame.saving for frame in frames),
    )
