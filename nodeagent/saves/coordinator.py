"""Saves that the controller asks for: every rank of the job here saves at one step boundary and stands still after it.

Pure state beside Jobs: told of frames with their times, it posts frames and answers. A request is known by its id, which the
controller makes up; whatever is repeated, reordered or lost, an id is carried out once.
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
_ASK_AGAIN_NS = 1_000_000_000
_GONE_NS = 2_000_000_000
"""A process whose connection is lost and that is not back within so long is gone: it dials again after a second."""
_SETTLED_NS = 3_000_000_000
"""Ranks that were there before the agent was started again are back within so long."""
_GATHER_NS = 150_000_000
"""When one rank says that it has not saved, others may know better why."""
_MOST_NAMED = 8
_MOST_RELEASED = 4
"""What a process stands still for is among the newest."""
_WORDS = {Reason.NO_CHECKPOINT: "has no checkpoint", Reason.TRAINED_ON: "has trained on since"}
"""Of one rank, behind its name."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """What the controller asks for."""

    id: str
    job_id: int
    restart: int
    within_s: float
    still_s: float


@dataclass(frozen=True, slots=True)
class SaveAnswer:
    """What came of it. No problem: all ranks here have saved that step, and stand still."""

    id: str
    problem: str = ""
    ranks: tuple[int, ...] = ()
    world_size: int = 0
    step: int = 0
    reason: Reason = Reason.UNSPECIFIED
    """Of the problem."""


class JobRequests(Protocol):
    """Carries frames to jobs; False: it did not go out."""

    def request_save(self, connection: int, save_id: str, still_s: float) -> bool:
        """Asks a process to save and stand still."""
        ...

    def request_go_on(self, connection: int, save_id: str) -> bool:
        """Asks a process to train on."""
        ...


@dataclass(slots=True)
class _Rank:
    """One process that has to save."""

    rank: int
    world_size: int
    connection: int = 0
    """That was asked; 0 = none yet."""
    asked_ns: int = 0
    lost_ns: int = 0
    """Since when it is not connected; 0 = it is."""
    told: Saved | None = None


@dataclass(slots=True)
class _Save:
    """One save under way. Ranks by process: they may connect anew."""

    order: SaveRequest
    deadline_ns: int
    ranks: dict[tuple[int, int], _Rank] = field(default_factory=dict)
    failed_ns: int = 0
    """When the first rank said that it has not saved; 0 = none has."""


class SaveCoordinator:
    """Invariants: every order is answered once for each time that it was asked, within its time; there is one save of a job at
    a time; ranks of a save that failed or was called off are told to go on, also those that connect anew."""

    def __init__(self, jobs: JobRegistry, post: JobRequests, answer: Callable[[SaveAnswer], None], now_ns: int) -> None:
        """`jobs` is told of everything first."""
        self._jobs = jobs
        self._post = post
        self._answer = answer
        self._begun_ns = now_ns
        self._open: dict[str, _Save] = {}
        self._over: OrderedDict[str, tuple[SaveRequest, SaveAnswer]] = OrderedDict()
        self._called_off: OrderedDict[str, int] = OrderedDict()
        """Id → job."""
        self._guard = RowGuard("saves of jobs")
        self.ignored = 0
        """Frames of jobs that answer what they were not asked."""

    @property
    def open(self) -> bool:
        """There are saves under way: `tick` has to be called."""
        return bool(self._open)

    # ---- by the controller

    def ask(self, order: SaveRequest, now_ns: int) -> None:
        """Begin, or say again how it ended."""
        if order.id in self._called_off:
            self._answer(SaveAnswer(order.id, "it was called off", reason=Reason.CALLED_OFF))
            return
        known = self._open[order.id].order if order.id in self._open else self._over.get(order.id, (None,))[0]
        if known is not None and (known.job_id, known.restart) != (order.job_id, order.restart):
            problem = f"that id is of a save of job {known.job_id}, run {known.restart}"
            self._answer(SaveAnswer(order.id, problem, reason=Reason.REFUSED))
        elif order.id in self._over:
            self._answer(self._again(self._over[order.id][1], order))
        elif known is None:
            for other in [save for save in self._open.values() if save.order.job_id == order.job_id]:
                problem = f"{order.id} was asked for instead"
                self._end(other, SaveAnswer(other.order.id, problem, reason=Reason.SUPERSEDED), go_on=False)
            save = self._open[order.id] = _Save(order, now_ns + round(order.within_s * 1e9))
            self._look(save, now_ns)

    def go_on(self, save_id: str, job_id: int, restart: int) -> None:
        """The job is not stopped: also where that save was never asked for here, or is yet to be."""
        _remember(self._called_off, save_id, job_id)
        save = self._open.get(save_id)
        if save is not None:
            self._end(save, SaveAnswer(save_id, "it was called off", reason=Reason.CALLED_OFF), go_on=False)
        for trainer in self._jobs.training_processes(job_id, restart):
            if trainer.checkpoint is not None:
                self._post.request_go_on(trainer.connection, save_id)

    # ---- by jobs: a Listener

    def opened(self, connection: int, process: JobProcess, now_ns: int) -> None:
        """Nothing is known of it yet."""

    def received(self, connection: int, frame: Frame, now_ns: int) -> None:
        """An answer, or a process that says how it can come back."""
        if isinstance(frame, Saved):
            self._told(connection, frame, now_ns)
        elif isinstance(frame, Checkpoint) and frame.saving:
            self._release(connection)

    def closed(self, connection: int, now_ns: int) -> None:
        """`tick` sees whether it comes back."""

    def tick(self, now_ns: int) -> None:
        """A few times a second while `open`."""
        for _ in self._guard.each(list(self._open.values()), lambda save: self._look(save, now_ns)):
            pass

    # ---- inside

    def _look(self, save: _Save, now_ns: int) -> None:
        """Ask who has to be asked; end the save where it is known how it ends."""
        order = save.order
        trainers = self._jobs.training_processes(order.job_id, order.restart)
        settled = now_ns - self._begun_ns >= _SETTLED_NS
        for trainer in trainers:
            if (reason := self._ask_rank(save, trainer, now_ns)) is not None:
                self._fail(save, reason, f"{_named([trainer.rank])} {_WORDS[reason]}")
                return
        here = {trainer.key for trainer in trainers}
        for key, rank in save.ranks.items():
            rank.lost_ns = 0 if key in here else rank.lost_ns or now_ns
        gone = [rank.rank for rank in save.ranks.values() if rank.lost_ns and now_ns - rank.lost_ns >= _GONE_NS]
        if save.failed_ns and now_ns - save.failed_ns >= _GATHER_NS:
            self._fail(save, Reason.RANK_FAILED, _why(save.ranks.values()))
        elif not save.ranks and settled:
            self._fail(save, Reason.NO_TRAINERS, f"nobody of job {order.job_id} trains here")
        elif gone:
            self._fail(save, Reason.RANKS_GONE, f"{_named(gone)} is gone")
        elif now_ns >= save.deadline_ns:
            late = [rank.rank for rank in save.ranks.values() if rank.told is None]
            self._fail(save, Reason.LATE, f"{_named(late)} did not save within {order.within_s:g} s")
        else:
            self._end_if_all(save, settled=settled)

    def _ask_rank(self, save: _Save, trainer: TrainingProcess, now_ns: int) -> Reason | None:
        """Ask it where it is to be asked now; why it will not save, as far as the agent sees. What ends once it was asked says
        so itself."""
        rank, checkpoint = save.ranks.get(trainer.key), trainer.checkpoint
        if checkpoint is None or (rank is None and not checkpoint.open):
            return Reason.NO_CHECKPOINT
        if rank is None:
            rank = save.ranks[trainer.key] = _Rank(checkpoint.rank, checkpoint.world_size)
        if rank.told is not None:
            return Reason.TRAINED_ON if rank.told.complete and not checkpoint.saving else None
        anew = rank.connection != trainer.connection
        if anew or now_ns - rank.asked_ns >= _ASK_AGAIN_NS:
            rank.connection, rank.asked_ns = trainer.connection, now_ns
            self._post.request_save(trainer.connection, save.order.id, save.order.still_s)
        return None

    def _told(self, connection: int, frame: Saved, now_ns: int) -> None:
        save = self._open.get(frame.id)
        ranks = save.ranks.values() if save is not None else ()
        rank = next((rank for rank in ranks if rank.connection == connection), None)
        if save is None or rank is None:
            self.ignored += 1
            return
        if rank.told is None or rank.told.complete:  # a save that was not complete does not become so
            rank.told = frame
        if not frame.complete:
            save.failed_ns = save.failed_ns or now_ns
        else:
            self._end_if_all(save, settled=now_ns - self._begun_ns >= _SETTLED_NS)

    def _end_if_all(self, save: _Save, *, settled: bool) -> None:
        """Where all ranks have saved: those here, or, soon after the agent was started, those of the whole job."""
        told = [rank.told for rank in save.ranks.values() if rank.told is not None and rank.told.complete]
        if not told or len(told) < len(save.ranks):
            return
        ranks = tuple(sorted(rank.rank for rank in save.ranks.values()))
        worlds = {rank.world_size for rank in save.ranks.values()}
        steps = {saved.step for saved in told}
        if len(set(ranks)) < len(ranks) or len(worlds) > 1:
            self._fail(
                save, Reason.INCONSISTENT, f"processes here do not train together: {_named(ranks)} of {_listed(worlds)}"
            )
        elif len(steps) > 1 or min(steps) < 0:
            self._fail(save, Reason.INCONSISTENT, f"ranks here saved at different steps: {_listed(steps)}")
        elif settled or len(ranks) == min(worlds):
            self._end(save, SaveAnswer(save.order.id, "", ranks, min(worlds), min(steps)), go_on=False)

    def _fail(self, save: _Save, reason: Reason, problem: str) -> None:
        self._end(save, SaveAnswer(save.order.id, problem, reason=reason), go_on=True)

    def _end(self, save: _Save, answer: SaveAnswer, *, go_on: bool) -> None:
        del self._open[save.order.id]
        _remember(self._over, save.order.id, (save.order, answer))
        if go_on:
            for trainer in self._jobs.training_processes(save.order.job_id, save.order.restart):
                if trainer.checkpoint is not None:
                    self._post.request_go_on(trainer.connection, save.order.id)
        self._answer(answer)

    def _again(self, answer: SaveAnswer, order: SaveRequest) -> SaveAnswer:
        """The same answer, as long as it is true."""
        trainers = self._jobs.training_processes(order.job_id, order.restart)
        still = {one.checkpoint.rank for one in trainers if one.checkpoint is not None and one.checkpoint.saving}
        if answer.problem or still >= set(answer.ranks):
            return answer
        return SaveAnswer(order.id, "ranks have trained on since", reason=Reason.TRAINED_ON)

    def _release(self, connection: int) -> None:
        """A process that saves or stands still, and may have missed that what it stands still for is over."""
        job = self._jobs.job_of(connection)
        if job is None or any(save.order.job_id == job for save in self._open.values()):
            return
        failed = [order.id for order, answer in self._over.values() if order.job_id == job and answer.problem]
        called_off = [save_id for save_id, of in self._called_off.items() if of == job]
        for save_id in {*failed[-_MOST_RELEASED:], *called_off[-_MOST_RELEASED:]}:
            self._post.request_go_on(connection, save_id)


def _remember(known: OrderedDict[str, _T], key: str, value: _T) -> None:
    """The newest _REMEMBERED."""
    known[key] = value
    known.move_to_end(key)
    while len(known) > _REMEMBERED:
        known.popitem(last=False)


def _why(ranks: Iterable[_Rank]) -> str:
    """The best of what ranks say: one that could not write itself knows why."""
    failed = [(rank.rank, rank.told.problem) for rank in ranks if rank.told is not None and not rank.told.complete]
    rank, problem = min(failed, key=lambda item: (not item[1].startswith("could not"), item))
    return f"{_named([rank])}: {problem}"


def _named(ranks: Iterable[int]) -> str:
    found = sorted(ranks)
    if found in ([], [-1]):
        return "the process that trains"
    more = ", ..." if len(found) > _MOST_NAMED else ""
    return f"rank{'s' * (len(found) > 1)} {', '.join(map(str, found[:_MOST_NAMED]))}{more}"


def _listed(numbers: Iterable[int]) -> str:
    return " and ".join(map(str, sorted(numbers)))
