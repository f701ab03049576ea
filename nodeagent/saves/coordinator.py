"""Saves that the controller requests: every rank of the job on this node saves at the same step, and then pauses.

Pure state beside the registry of jobs: frames come with their times; requests to processes and answers go out through callables.
Each request has an id, chosen by the controller. Whatever is repeated, reordered or lost, each id is carried out once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from nodeagent.identity.peer import JobProcess
from nodeagent.jobsocket.registry import JobRegistry, TrainingProcess
from nodeagent.wire.frames import Checkpoint, Frame, Saved
from nodeagent.wire.guarded_rows import RowGuard
from nodeagent.wire.reasons import Reason

_REMEMBERED = 256
_REPEAT_NS = 1_000_000_000
_GONE_NS = 2_000_000_000
"""A process without a connection for so long is gone: a live one connects again after a second."""
_SETTLED_NS = 3_000_000_000
"""After a restart of the agent, all ranks are connected again within so long."""
_GATHER_NS = 150_000_000
"""After the first rank that could not save, the agent waits so long: another rank may give a better reason."""
_MAX_NAMED = 8
_MAX_REPEATED = 4
"""Number of newest saves for which go_on is repeated: the save for which a process is paused is among them."""
_WORDS = {Reason.NO_CHECKPOINT: "has no checkpoint", Reason.TRAINED_ON: "has trained on since"}
"""The rest of a sentence that begins with the name of a rank."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """The controller's request that a job saves."""

    id: str
    job_id: int
    restart: int
    within_s: float
    """Time until the save must be complete."""
    still_s: float
    """Longest pause of the ranks after it."""
    why: str = ""
    """Why the job is to be stopped, for the job's own log; empty = not known."""


@dataclass(frozen=True, slots=True)
class SaveAnswer:
    """The outcome of a request. Without a problem all ranks on this node have saved `step`, and are paused."""

    id: str
    problem: str = ""
    ranks: tuple[int, ...] = ()
    world_size: int = 0
    step: int = 0
    reason: Reason = Reason.UNSPECIFIED
    """Kind of the problem."""


class JobRequests(Protocol):
    """Sends requests to processes of jobs. The methods return False when the request could not be sent."""

    def request_save(self, connection: int, save_id: str, still_s: float, why: str) -> bool:
        """Request that a process saves and pauses."""
        ...

    def request_go_on(self, connection: int, save_id: str) -> bool:
        """Request that a process trains on."""
        ...


@dataclass(slots=True)
class _Rank:
    """One process that must save."""

    rank: int
    world_size: int
    connection: int = 0
    """Connection on which the request was sent; 0 = not sent yet."""
    requested_ns: int = 0
    lost_ns: int = 0
    """Time since which the process is not connected; 0 = it is."""
    answer: Saved | None = None


@dataclass(slots=True)
class _OpenSave:
    """One save that is not over."""

    request: SaveRequest
    deadline_ns: int
    ranks: dict[tuple[int, int], _Rank] = field(default_factory=dict)
    """Process → rank; a process may connect again.
    Bound: the processes that train, and one that is gone for `_GONE_NS` ends the save."""
    failed_ns: int = 0
    """Time at which the first rank answered that it could not save; 0 = none has."""


class SaveCoordinator:
    """Carries out the saves of all jobs of this node.

    Invariants: every request is answered once for each time that it came, within its time; a job has one open save at a time; the
    ranks of a save that failed or was called off are requested to train on, also those that connect again.
    """

    def __init__(
        self, jobs: JobRegistry, requests: JobRequests, answer: Callable[[SaveAnswer], None], now_ns: int
    ) -> None:
        """`jobs` must receive every event before this listener."""
        self._jobs = jobs
        self._requests = requests
        self._answer = answer
        self._started_ns = now_ns
        self._open: dict[str, _OpenSave] = {}
        """Saves under way by id. Bound: one for each job."""
        self._over: OrderedDict[str, tuple[SaveRequest, SaveAnswer]] = OrderedDict()
        """Request and answer of saves that are over. Bound: the newest `_REMEMBERED`."""
        self._called_off: OrderedDict[str, int] = OrderedDict()
        """Id of the save → job. Bound: the newest `_REMEMBERED`."""
        self._guard = RowGuard("saves of jobs")
        self.ignored = 0
        """Answers of jobs to requests that they were not sent."""

    @property
    def open(self) -> bool:
        """There are saves that are not over: `tick` must be called."""
        return bool(self._open)

    # ---- requests of the controller

    def start(self, request: SaveRequest, now_ns: int) -> None:
        """Begin a save, or repeat the answer if it is over."""
        if request.id in self._called_off:
            self._answer(SaveAnswer(request.id, "it was called off", reason=Reason.CALLED_OFF))
            return
        known = self._open[request.id].request if request.id in self._open else self._over.get(request.id, (None,))[0]
        if known is not None and (known.job_id, known.restart) != (request.job_id, request.restart):
            problem = f"this id belongs to a save of job {known.job_id}, run {known.restart}"
            self._answer(SaveAnswer(request.id, problem, reason=Reason.REFUSED))
        elif request.id in self._over:
            self._answer(self._repeated(self._over[request.id][1], request))
        elif known is None:
            for other in [save for save in self._open.values() if save.request.job_id == request.job_id]:
                problem = f"{request.id} was requested instead"
                self._end(other, SaveAnswer(other.request.id, problem, reason=Reason.SUPERSEDED), go_on=False)
            save = self._open[request.id] = _OpenSave(request, now_ns + round(request.within_s * 1e9))
            self._advance(save, now_ns)

    def go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """Call the save off, also if its request has not come here, or comes later."""
        _remember(self._called_off, save_id, job_id)
        save = self._open.get(save_id)
        if save is not None:
            self._end(save, SaveAnswer(save_id, "it was called off", reason=Reason.CALLED_OFF), go_on=False)
        for process in self._jobs.training_processes(job_id, restart):
            if process.checkpoint is not None:
                self._requests.request_go_on(process.connection, save_id)

    # ---- events of jobs: a Listener

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """Do nothing: the process has not sent a frame."""

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """Take an answer to a request, and the state of a process's checkpoints."""
        if isinstance(frame, Saved):
            self._take_answer(connection, frame, now_ns)
        elif isinstance(frame, Checkpoint) and frame.saving:
            self._repeat_go_on(connection)

    def closed(self, connection: int, now_ns: int) -> None:
        """Do nothing: `tick` notices when the process does not connect again."""

    def tick(self, now_ns: int) -> None:
        """Advance every open save. To be called a few times a second while `open`."""
        saves = list(self._open.values())
        advanced = [save.request.id for save, _ in self._guard.each(saves, lambda save: self._advance(save, now_ns))]
        for save in saves:
            # After an error it would stay open, without an answer, until the agent ends.
            if save.request.id not in advanced and now_ns >= save.deadline_ns and save.request.id in self._open:
                problem = f"the agent could not follow it within {save.request.within_s:g} s"
                self._end(save, SaveAnswer(save.request.id, problem, reason=Reason.LATE), go_on=False)

    # ---- inside

    def _advance(self, save: _OpenSave, now_ns: int) -> None:
        """Send the requests that are due, and end the save if its outcome is known."""
        request = save.request
        processes = self._jobs.training_processes(request.job_id, request.restart)
        settled = now_ns - self._started_ns >= _SETTLED_NS
        for process in processes:
            if (reason := self._request_rank(save, process, now_ns)) is not None:
                self._fail(save, reason, f"{_named([process.rank])} {_WORDS[reason]}")
                return
        here = {process.key for process in processes}
        for key, rank in save.ranks.items():
            rank.lost_ns = 0 if key in here else rank.lost_ns or now_ns
        gone = [rank.rank for rank in save.ranks.values() if rank.lost_ns and now_ns - rank.lost_ns >= _GONE_NS]
        if save.failed_ns and now_ns - save.failed_ns >= _GATHER_NS:
            self._fail(save, Reason.RANK_FAILED, _why(save.ranks.values()))
        elif not save.ranks and settled:
            self._fail(save, Reason.NO_TRAINERS, f"no process of job {request.job_id} trains on this node")
        elif gone:
            self._fail(save, Reason.RANKS_GONE, f"{_named(gone)} {'are' if len(gone) > 1 else 'is'} gone")
        elif now_ns >= save.deadline_ns:
            late = [rank.rank for rank in save.ranks.values() if rank.answer is None]
            self._fail(save, Reason.LATE, f"{_named(late)} did not save within {request.within_s:g} s")
        else:
            self._end_if_all(save, settled=settled)

    def _request_rank(self, save: _OpenSave, process: TrainingProcess, now_ns: int) -> Reason | None:
        """Send the request to a process if that is due. Return why it will not save, as far as the agent knows.

        A process whose training ends after the request answers that by itself.
        """
        rank, checkpoint = save.ranks.get(process.key), process.checkpoint
        if checkpoint is None or (rank is None and not checkpoint.open):
            return Reason.NO_CHECKPOINT
        if rank is None:
            rank = save.ranks[process.key] = _Rank(checkpoint.rank, checkpoint.world_size)
        if rank.answer is not None:
            return Reason.TRAINED_ON if rank.answer.complete and not checkpoint.saving else None
        reconnected = rank.connection != process.connection
        if reconnected or now_ns - rank.requested_ns >= _REPEAT_NS:
            rank.connection, rank.requested_ns = process.connection, now_ns
            self._requests.request_save(process.connection, save.request.id, save.request.still_s, save.request.why)
        return None

    def _take_answer(self, connection: int, frame: Saved, now_ns: int) -> None:
        save = self._open.get(frame.id)
        ranks = save.ranks.values() if save is not None else ()
        rank = next((rank for rank in ranks if rank.connection == connection), None)
        if save is None or rank is None:
            self.ignored += 1
            return
        if rank.answer is None or rank.answer.complete:  # a save that was not complete does not become complete
            rank.answer = frame
        if not frame.complete:
            save.failed_ns = save.failed_ns or now_ns
        else:
            self._end_if_all(save, settled=now_ns - self._started_ns >= _SETTLED_NS)

    def _end_if_all(self, save: _OpenSave, *, settled: bool) -> None:
        """End the save if all ranks on this node have saved; soon after a start of the agent, if all of the whole job have."""
        answers = [rank.answer for rank in save.ranks.values() if rank.answer is not None and rank.answer.complete]
        if not answers or len(answers) < len(save.ranks):
            return
        ranks = tuple(sorted(rank.rank for rank in save.ranks.values()))
        worlds = {rank.world_size for rank in save.ranks.values()}
        steps = {saved.step for saved in answers}
        if len(set(ranks)) < len(ranks) or len(worlds) > 1:
            self._fail(
                save, Reason.INCONSISTENT, f"processes here do not train together: {_named(ranks)} of {_listed(worlds)}"
            )
        elif len(steps) > 1 or min(steps) < 0:
            self._fail(save, Reason.INCONSISTENT, f"ranks here saved at different steps: {_listed(steps)}")
        elif settled or len(ranks) == min(worlds):
            self._end(save, SaveAnswer(save.request.id, "", ranks, min(worlds), min(steps)), go_on=False)

    def _fail(self, save: _OpenSave, reason: Reason, problem: str) -> None:
        self._end(save, SaveAnswer(save.request.id, problem, reason=reason), go_on=True)

    def _end(self, save: _OpenSave, answer: SaveAnswer, *, go_on: bool) -> None:
        del self._open[save.request.id]
        _remember(self._over, save.request.id, (save.request, answer))
        if go_on:
            for process in self._jobs.training_processes(save.request.job_id, save.request.restart):
                if process.checkpoint is not None:
                    self._requests.request_go_on(process.connection, save.request.id)
        self._answer(answer)

    def _repeated(self, answer: SaveAnswer, request: SaveRequest) -> SaveAnswer:
        """Return the same answer as before if it is still true."""
        processes = self._jobs.training_processes(request.job_id, request.restart)
        saving = {one.checkpoint.rank for one in processes if one.checkpoint is not None and one.checkpoint.saving}
        if answer.problem or saving >= set(answer.ranks):
            return answer
        return SaveAnswer(request.id, "ranks have trained on since", reason=Reason.TRAINED_ON)

    def _repeat_go_on(self, connection: int) -> None:
        """Let a process train on that may be paused for a save which is over, and has missed the request."""
        job = self._jobs.job_of(connection)
        if job is None or any(save.request.job_id == job for save in self._open.values()):
            return
        failed = [request.id for request, answer in self._over.values() if request.job_id == job and answer.problem]
        called_off = [save_id for save_id, of in self._called_off.items() if of == job]
        for save_id in {*failed[-_MAX_REPEATED:], *called_off[-_MAX_REPEATED:]}:
            self._requests.request_go_on(connection, save_id)


def _remember(known: OrderedDict[str, _T], key: str, value: _T) -> None:
    """Keep the newest _REMEMBERED entries."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


def _why(ranks: Iterable[_Rank]) -> str:
    """Return the best reason of the ranks: the rank that has failed itself knows it."""
    failed = [rank for rank in ranks if rank.answer is not None and not rank.answer.complete]
    _, rank, problem = min((not rank.answer.own, rank.rank, rank.answer.problem) for rank in failed if rank.answer)
    return f"{_named([rank])}: {problem}"


def _named(ranks: Iterable[int]) -> str:
    found = sorted(ranks)
    if found in ([], [-1]):
        return "the process that trains"
    more = ", ..." if len(found) > _MAX_NAMED else ""
    return f"rank{'s' * (len(found) > 1)} {', '.join(map(str, found[:_MAX_NAMED]))}{more}"


def _listed(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))
