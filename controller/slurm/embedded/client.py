"""The SlurmClient over the emulated cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

from controller.base.clock import Clock
from controller.base.errors import SlurmUnavailableError
from controller.slurm.client import Failure, FailureReason, Failures, Pin, SlurmFacts
from controller.slurm.embedded import view
from controller.slurm.embedded.ctld import commands, pinning
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.embedded.ctld.slurmctld import Slurmctld
from controller.slurm.embedded.faults import Call, Fault, FaultKind, Faults
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from controller.slurm.model.shares import Shares
from controller.slurm.updates.changes import ended_first, held_again, held_by_others

VERSION = (22, 5, 8)
"""The Slurm that is emulated."""

_Verb = Callable[[Job], str | Failure | None]
"""Changes one job; returns Slurm's error message, if any."""


class EmbeddedClient:
    """Keeps the `SlurmClient` protocol. Calls take `Delays.call_s` on the cluster's clock, and `faults` can break them."""

    def __init__(self, slurmctld: Slurmctld, clock: Clock, faults: Faults, now: Callable[[], float]) -> None:
        """`now`: Unix time by the clock of the client's machine."""
        self._ctld = slurmctld
        self._clock = clock
        self._faults = faults
        self._now = now

    async def close(self) -> None:
        """Do nothing: the emulated Slurm has no processes."""

    async def facts(self) -> SlurmFacts:
        """Return version, cluster name and settings."""
        await self._arrive("facts", ())
        settings = {
            "ClusterName": self._ctld.description.name,
            "KillWait": f"{self._ctld.delays.kill_wait_s:g} sec",
            "MinJobAge": f"{self._ctld.delays.min_job_age_s:g} sec",
            "SchedulerParameters": f"batch_sched_delay=0,requeue_delay={self._ctld.delays.requeue_s:.0f}",
            "JobSubmitPlugins": "lua",
        }
        return SlurmFacts(VERSION, self._ctld.description.name, "embedded", settings)

    async def topology(self) -> str:
        """Return an empty text: the emulated Slurm has no topology."""
        return ""

    async def shares(self, *, associations: bool = False) -> Shares:  # noqa: ARG002 - the emulated Slurm has neither
        """Return no shares: the emulated Slurm has no accounting."""
        return Shares()

    async def snapshot(self) -> SlurmSnapshot:
        """Read everything."""
        time_s = self._now()
        await self._arrive("snapshot", ())
        return view.snapshot(self._ctld, time_s)

    async def unregistered(self, nodes: Sequence[str]) -> frozenset[str]:
        """Return those of these nodes that have not registered with slurmctld since it started."""
        await self._arrive("unregistered", ())
        return frozenset(nodes) if self._ctld.unregistered_until_s > self._ctld.now_s else frozenset()

    async def read(self, keys: Sequence[JobKey]) -> Mapping[JobKey, SlurmJob]:
        """Read these jobs; those that are gone are left out."""
        await self._arrive("read", keys)
        found = ((key, self._find(key)) for key in keys)
        return {key: view.job_view(job) for key, job in found if job is not None}

    async def hold(self, keys: Sequence[JobKey]) -> Failures:
        """Hold pending jobs, and mark them."""
        return await self._each("hold", keys, self._hold)

    async def unmark(
        self, keys: Sequence[JobKey], mark: str, instead: str = "", *, unless_held: bool = False
    ) -> Failures:
        """Remove a token from the admin comment, and add another one."""

        def change(job: Job) -> str | Failure | None:
            shown = view.job_view(job) if unless_held else None
            if shown is not None and shown.is_held_again:
                return held_again(shown)
            return self._comment(job, _exchanged(job, mark, instead))

        return await self._each("unmark", keys, change)

    async def mark(self, keys: Sequence[JobKey], mark: str) -> Failures:
        """Add a token to the admin comment."""
        return await self._each("mark", keys, lambda job: self._comment(job, with_mark(job.admin_comment, mark)))

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        """Bind held jobs to nodes."""
        by_key = {pin.key: pin for pin in pins}
        return await self._each("pin", list(by_key), lambda job: self._pin(job, by_key[view.key_of(job)]))

    def can_bind_gpus(self, pin: Pin) -> bool:
        """Return True if every GPU that the pin names exists."""
        return not pinning.wrong_gpus(self._ctld, pin)

    def stays_bound(self, key: JobKey, original: ResourceRequest) -> bool:  # noqa: ARG002
        """Return False: the emulation takes every request back."""
        return False

    async def unpin(self, originals: Mapping[JobKey, ResourceRequest]) -> Failures:
        """Give held jobs their own request back."""
        return await self._each(
            "unpin", list(originals), lambda job: pinning.unpin(self._ctld, job, originals[view.key_of(job)])
        )

    async def release(self, keys: Sequence[JobKey]) -> Failures:
        """Release the jobs."""
        return await self._each("release", keys, self._release)

    async def signal(self, keys: Sequence[JobKey], signal: str) -> Failures:
        """Send a signal to batch shell and tasks."""
        return await self._each("signal", keys, lambda job: commands.signal(self._ctld, job, signal))

    async def requeue_hold(
        self,
        keys: Sequence[JobKey],
        *,
        paused: Collection[JobKey] = (),  # noqa: ARG002 - of the interface
    ) -> Failures:
        """Stop running jobs, and put them back into the queue, held and marked. A job cannot end while that happens, so that
        `paused` makes no difference."""
        return await self._each("requeue_hold", keys, self._requeue_hold)

    async def set_begin_time(self, keys: Sequence[JobKey], begin_time_s: float | None) -> Failures:
        """Set the earliest start; None: now."""
        when = {"StartTime": "now" if begin_time_s is None else str(begin_time_s)}
        return await self._each("set_begin_time", keys, lambda job: commands.update(self._ctld, job, when))

    def _hold(self, job: Job) -> str | Failure | None:
        if job.phase is not Phase.PENDING:
            return commands.NOT_PENDING
        if refusal := _held_by_others(job):
            return refusal
        if (shown := view.job_view(job)).is_its_users:
            return held_by_others(shown)
        return commands.uhold(job) or self._comment(job, _exchanged(job, PIN_MARK, HOLD_MARK))

    def _pin(self, job: Job, order: Pin) -> str | Failure | None:
        return _held_by_others(job) or pinning.pin(self._ctld, job, order, self._now())

    def _release(self, job: Job) -> str | Failure | None:
        if job.phase is not Phase.PENDING:
            return commands.NOT_PENDING  # a running job's hold is its user's
        return _held_by_others(job) or commands.release(self._ctld, job)

    def _requeue_hold(self, job: Job) -> str | None:
        if job.phase is Phase.ENDED:
            return f"the job has ended ({job.state}); it is not started again"
        theirs = job.held and HOLD_MARK not in job.admin_comment.split()
        comment = job.admin_comment if job.held else without_mark(job.admin_comment, USER_HOLD_MARK)
        mark = USER_HOLD_MARK if theirs else HOLD_MARK
        return commands.requeue(self._ctld, job, held=True) or self._comment(job, with_mark(comment, mark))

    def _requeue_ended(self, job: Job) -> str | Failure:
        """Cancel the job, as its user might just before the requeue, and requeue it: slurmctld starts an ended job again."""
        self._ctld.leave_nodes(job, "CANCELLED")
        return commands.requeue(self._ctld, job, held=True) or ended_first(job.job_id)

    def _comment(self, job: Job, text: str) -> str | None:
        return commands.update(self._ctld, job, {"AdminComment": text})

    def _find(self, key: JobKey) -> Job | None:
        job = self._ctld.jobs.get(key.job_id)
        return job if job is not None and job.submit_time_s == key.submit_time_s else None

    async def _arrive(self, verb: str, keys: Sequence[JobKey]) -> Fault | None:
        """Let the request reach slurmctld. Raises SlurmUnavailableError when it gets lost."""
        await self._clock.sleep(self._ctld.delays.call_s + self._faults.delay_s(verb))
        self._ctld.catch_up()
        self._faults.calls.append(Call(self._ctld.now_s, verb, tuple(key.job_id for key in keys)))
        fault = self._faults.take(verb)
        lost = fault is not None and fault.kind is FaultKind.REQUEST_LOST
        if lost or self._faults.is_unavailable or self._ctld.down_until_s > self._ctld.now_s:
            raise SlurmUnavailableError(f"the embedded slurmctld did not answer to {verb}")
        return fault

    async def _each(self, verb: str, keys: Sequence[JobKey], change: _Verb) -> Failures:
        """Make the change for one job after the other."""
        fault = await self._arrive(verb, keys)
        if fault is not None and fault.kind is FaultKind.REFUSED:
            return {key: Failure(fault.message) for key in keys}
        if fault is not None and fault.kind is FaultKind.ENDED_FIRST:
            fault, change = None, self._requeue_ended
        reached = keys[: self._faults.most_jobs]
        if fault is not None and fault.kind is FaultKind.CUT_SHORT:
            reached = reached[: fault.jobs_done]
        failures: dict[JobKey, Failure] = {}
        for key in reached:
            job = self._find(key)
            if job is None:
                failures[key] = Failure(commands.INVALID_ID, FailureReason.GONE)
            elif complaint := change(job):
                failures[key] = Failure(complaint) if isinstance(complaint, str) else complaint
        if fault is not None or len(reached) < len(keys):
            raise SlurmUnavailableError(f"the embedded slurmctld was lost before it answered to {verb}")
        return failures


def _held_by_others(job: Job) -> Failure | None:
    seen = view.job_view(job)
    return held_by_others(seen) if seen.is_held_by_others and seen.phase is Phase.PENDING else None


def _exchanged(job: Job, mark: str, instead: str) -> str:
    comment = without_mark(job.admin_comment, mark)
    return with_mark(comment, instead) if instead else comment


def with_mark(comment: str, mark: str) -> str:
    """Return the comment with the token; unchanged when the token is there already."""
    if mark in comment.split():
        return comment
    return f"{comment} {mark}" if comment else mark


def without_mark(comment: str, mark: str) -> str:
    """Return the comment without the token; everything else, blanks too, stays as it is."""
    return re.sub(rf"^{re.escape(mark)}(?:\s|$)|\s{re.escape(mark)}(?=\s|$)", "", comment)
