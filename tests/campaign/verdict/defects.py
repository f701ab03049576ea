"""Defects that were corrected, and can be put back, to see whether the campaign finds them.

Each function puts one of them back for as long as its context lasts. Its docstring describes the defect; times are scaled down if
the defect needed days.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from controller.base.errors import JournalError
from controller.base.sqlite_file import UnusableFileError
from controller.cycle.decision.decider import Decider
from controller.cycle.steps.hand_over import HandOver
from controller.cycle.steps.own_requests import OwnRequests
from controller.observe import role
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.slurm import user_holds
from controller.slurm.client import HOLD_MARK, PIN_MARK, Phase, SlurmJob
from controller.slurm.embedded.client import EmbeddedClient, with_mark, without_mark
from controller.slurm.embedded.ctld import commands
from controller.slurm.embedded.ctld.plugin import SubmitPlugin
from controller.slurm.embedded.view import job_view
from controller.slurm.updates.changes import held_by_others
from controller.state.journal_file import JournalFile
from controller.state.ledger import Refusal
from policies.serving.runtime.tasks.backoff import Backoff
from policies.serving.runtime.tasks.supervise import Tasks

Defect = Callable[[], AbstractContextManager[None]]


@contextmanager
def _patched(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in patches:
            stack.enter_context(each)
        yield


def exponent_overflows() -> AbstractContextManager[None]:
    """The pause of a refused job is a power that overflows (after 3.6 days; here after three refusals)."""

    def pause_s(self: Backoff, doublings: int) -> float:
        if self.longest_s >= role.LAST_RETRY_S and doublings >= 3:
            raise OverflowError(34, "Numerical result out of range")
        return min(self.first_s * 2.0**doublings, self.longest_s)

    return _patched(patch.object(Backoff, "pause_s", pause_s))


def swap_ends_the_controller() -> AbstractContextManager[None]:
    """`headway policy use` cancels the call under way, and the controller treats that as its own end."""
    real = Decider.use

    async def use(self: Decider, endpoint: Any, state: Any) -> Any:
        old = self._server.endpoint
        spec = await real(self, endpoint, state)
        await old.close()
        return spec

    return _patched(
        patch.object(Decider, "use", use),
        patch("policies.serving.runtime.tasks.supervise.cancelled_by_others", lambda: False),
    )


def mark_fails_hold_forgotten() -> AbstractContextManager[None]:
    """A user's hold is forgotten once it has been read, whether or not the job was marked."""
    real = HandOver.hand_over

    async def hand_over(self: HandOver, jobs: Any) -> Any:
        found = list(jobs)
        try:
            return await real(self, found)
        finally:
            self._holds.remove(list(self._holds.read()))

    return _patched(patch.object(HandOver, "hand_over", hand_over))


def hold_while_placed_dropped() -> AbstractContextManager[None]:
    """A hold that comes while jobs are placed is not looked for, neither before the release nor after it."""

    async def release(self: HandOver, jobs: Any, why: Any) -> Any:
        return await self._verbs.release(why), set()

    return _patched(patch.object(HandOver, "release", release))


def hold_only_wakes() -> AbstractContextManager[None]:
    """The plugin reports a user's hold through the wake pipe alone: without a reader it is lost."""
    real = SubmitPlugin.__init__

    def init(self: SubmitPlugin, lease: Any, wake: Any = None, holds: Any = None) -> None:
        del holds
        real(self, lease, wake, None)

    return _patched(patch.object(SubmitPlugin, "__init__", init))


def every_hold_is_of_requeued_jobs() -> AbstractContextManager[None]:
    """Any hold file counts as a hold of every job that was requeued."""

    def is_held_by_user(job: SlurmJob, holds: Mapping[str, float]) -> bool:
        oldest_s = job.key.submit_time_s - 2.0 if job.restarts == 0 else 0.0
        return bool(holds) and any(holds.get(name, 0.0) >= oldest_s for name in user_holds._names(job))

    real, real_own = user_holds.is_held_by_user, user_holds.own_holds

    def own_holds(holds: Mapping[str, float], jobs: Any) -> Mapping[str, float]:
        return real_own(holds, [job for job in jobs if real(job, holds)])

    return _patched(
        patch("controller.cycle.hold_files.own_holds", own_holds),
        patch.object(user_holds, "is_held_by_user", is_held_by_user),
        patch("controller.cycle.steps.hand_over.is_held_by_user", is_held_by_user),
    )


def users_cannot_release() -> AbstractContextManager[None]:
    """Headway holds a job as an operator does, so that a user's own hold of that job can never be ended."""

    def hold(self: EmbeddedClient, job: Any) -> Any:
        if job.phase is not Phase.PENDING:
            return commands.NOT_PENDING
        if job_view(job).is_held_by_others:
            return held_by_others(job_view(job))
        comment = without_mark(job.admin_comment, PIN_MARK)
        return commands.hold(job) or self._comment(job, with_mark(comment, HOLD_MARK))

    return _patched(patch.object(EmbeddedClient, "_hold", hold))


def both_marks_left() -> AbstractContextManager[None]:
    """A job whose hand-over to its user was interrupted keeps both marks."""

    async def finish(self: HandOver, keys: Any) -> None:
        return None

    return _patched(patch.object(HandOver, "finish", finish))


def unmarked_holds_are_ours() -> AbstractContextManager[None]:
    """A held job without a mark counts as held by Headway."""
    real = role._held

    def held(job: SlurmJob, *, may_begin: bool) -> Any:
        if user_holds.USER_HOLD_MARK in job.marks or HOLD_MARK in job.marks:
            return real(job, may_begin=may_begin)
        return role.WAITING if may_begin else None

    return _patched(
        patch.object(role, "_held", held), patch.object(SlurmJob, "is_held_by_others", property(lambda self: False))
    )


def journal_of_another_version_ends_it() -> AbstractContextManager[None]:
    """The controller ends at each start if the journal has another version."""
    from controller.state.journal_schema import JOURNAL

    real = JournalFile._open

    def open_(self: JournalFile) -> sqlite3.Connection:
        if self.path.exists():
            with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(self.path)) as db:
                (version,) = db.execute("PRAGMA user_version").fetchone()
                if version not in {0, JOURNAL.version}:
                    raise JournalError(f"{self.path} is of version {version}")
        return real(self)

    return _patched(patch.object(JournalFile, "_open", open_))


def damaged_journal_ends_it() -> AbstractContextManager[None]:
    """The controller ends at each start if the journal is damaged."""

    real = JournalFile._replaced

    def replaced(self: JournalFile, problem: UnusableFileError) -> sqlite3.Connection:
        if problem.kind == "damaged":
            raise JournalError("the journal is damaged")
        return real(self, problem)

    return _patched(patch.object(JournalFile, "_replaced", replaced))


def damaged_journal_ends_watchdog() -> AbstractContextManager[None]:
    """The watchdog needs a journal that it can read."""
    from controller.daemon.watchdog.watchdog import Watchdog

    def originals(path: Path) -> dict[Any, Any]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            for _, _, original in db.execute("SELECT job_id, submit_time_s, original FROM job").fetchall():
                if original is not None:
                    json.loads(original)
        return {}

    return _patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_known_originals", lambda self: self._originals()),
    )


def watchdog_frees_users_jobs() -> AbstractContextManager[None]:
    """The watchdog releases every held job with a mark of Headway, also jobs that users hold."""

    def held(job: SlurmJob) -> bool:
        return job.phase.value == "pending" and job.held and "headway:" in job.admin_comment

    return _patched(
        patch("controller.daemon.watchdog.watchdog.is_held_by_headway", held),
        patch.object(
            SlurmJob, "is_held_by_others", property(lambda self: False)
        ),  # the clients' check is of a later time
    )


def unfit_node_for_ever() -> AbstractContextManager[None]:
    """A job is placed again on the node on which Slurm has just refused it, and is never given to Slurm."""
    return _patched(
        patch.object(Refusal, "unfit_nodes", lambda self, now_s: frozenset()),
        patch("controller.cycle.refusals.MOST_PLACES", 10**9),
    )


def impossible_where_placed() -> AbstractContextManager[None]:
    """A job that Slurm calls impossible on the nodes that Headway chose stays so (BadConstraints)."""
    return _patched(patch.object(SlurmJob, "is_impossible", property(lambda self: False)))


def own_request_not_restored() -> AbstractContextManager[None]:
    """A job that is given to Slurm still requests the nodes that Headway chose."""

    async def restore(self: OwnRequests, keys: Any, *, stay: bool = False) -> Any:
        del stay
        for key in keys:
            self._ledger.originals.pop(key, None)
        return {}

    return _patched(patch.object(OwnRequests, "restore", restore))


def stopped_before_it_has_saved() -> AbstractContextManager[None]:
    """A job is stopped as soon as the request to save was sent."""
    return _patched(patch.object(PreemptionAttempt, "to_stop", lambda self, now: self.row.stopped_s is None))


def stopped_twice() -> AbstractContextManager[None]:
    """If slurmctld did not answer to a stop, the job is stopped again, whatever its state is."""

    real = EmbeddedClient._requeue_hold

    def requeue_hold(self: EmbeddedClient, job: Any) -> str | None:
        if job.phase is not Phase.ENDED:
            return real(self, job)
        comment = with_mark(job.admin_comment, HOLD_MARK)
        return commands.requeue(self._ctld, job, held=True) or self._comment(job, comment)

    return _patched(patch.object(EmbeddedClient, "_requeue_hold", requeue_hold))


def requests_by_id_alone() -> AbstractContextManager[None]:
    """A change is made to the job that has the id now, although the intended job may be lost."""

    def find(self: EmbeddedClient, key: Any) -> Any:
        return self._ctld.jobs.get(key.job_id)

    return _patched(patch.object(EmbeddedClient, "_find", find))


def tasks_die_silently() -> AbstractContextManager[None]:
    """A background task that fails is not restarted."""
    real = Tasks._keep

    async def keep(self: Tasks, name: str, work: Any, **how: Any) -> None:
        with contextlib.suppress(Exception):
            if name == "lease":
                await real(self, name, work, **how)
            else:
                await work()

    return _patched(patch.object(Tasks, "_keep", keep))


def clock_set_back_keeps_pauses() -> AbstractContextManager[None]:
    """After the clock was set back, a refused job waits until the time that was recorded before."""
    return _patched(patch.object(role, "_is_true", lambda refusal, now_s: True))


def users_hold_overridden() -> AbstractContextManager[None]:
    """A job that its user has held since it was last read is marked, placed and released like any other."""
    return _patched(patch.object(SlurmJob, "is_held_by_others", property(lambda self: False)))


def reissued_id_inherits() -> AbstractContextManager[None]:
    """A new job with the id of a lost job counts as that job once it has been requeued, and gets its request."""
    return _patched(
        patch("controller.cycle.ledger_keeper.may_be_same", lambda job, former, ledger: True),
        patch("controller.cycle.changes.is_same_request", lambda one, other: True),
    )


_ALL: Sequence[Defect] = (
    exponent_overflows,
    swap_ends_the_controller,
    mark_fails_hold_forgotten,
    hold_while_placed_dropped,
    hold_only_wakes,
    every_hold_is_of_requeued_jobs,
    users_cannot_release,
    both_marks_left,
    unmarked_holds_are_ours,
    journal_of_another_version_ends_it,
    damaged_journal_ends_it,
    damaged_journal_ends_watchdog,
    watchdog_frees_users_jobs,
    unfit_node_for_ever,
    impossible_where_placed,
    own_request_not_restored,
    stopped_before_it_has_saved,
    stopped_twice,
    requests_by_id_alone,
    tasks_die_silently,
    clock_set_back_keeps_pauses,
    users_hold_overridden,
    reissued_id_inherits,
)
DEFECTS: Mapping[str, Defect] = {defect.__name__.replace("_", "-"): defect for defect in _ALL}
"""Name on the command line → function that puts the defect back."""
