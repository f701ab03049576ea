"""Defects that were mended, and can be put back: a campaign that does not find them is not worth its time.

Each function puts one of them back for as long as its context lasts. What they do is told as the reviews told it; times are
scaled down where a defect needed days. Where a later check makes an old defect harmless, that check is left out too.
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
from controller.cycle.changes import scoped
from controller.cycle.decision.decider import Decider
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.cycle.steps.applier import Applier, _reasons
from controller.cycle.steps.hand_over import HandOver
from controller.cycle.steps.own_requests import OwnRequests
from controller.observe import role
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.preempt.manager import PreemptionManager
from controller.slurm import user_holds
from controller.slurm.client import HOLD_MARK, PIN_MARK, Phase, SlurmJob
from controller.slurm.embedded.client import EmbeddedClient, with_mark, without_mark
from controller.slurm.embedded.ctld import commands
from controller.slurm.embedded.ctld.plugin import SubmitPlugin
from controller.slurm.embedded.view import job_view
from controller.slurm.updates.changes import held_by_others
from controller.slurm.updates.pieces import Pieces
from controller.state.journal import Journal
from controller.state.journal_file import JournalFile
from controller.state.journal_salvage import read_originals
from controller.state.ledger import Refusal
from policies.serving.runtime.backoff import Backoff
from policies.serving.runtime.supervise import Tasks

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
    """`headway policy use` cancels the call under way, and the controller takes that for its own end."""
    real = Decider.use

    async def use(self: Decider, endpoint: Any, state: Any) -> Any:
        old = self._server.endpoint
        spec = await real(self, endpoint, state)
        await old.close()
        return spec

    return _patched(
        patch.object(Decider, "use", use),
        patch("policies.serving.runtime.supervise.cancelled_by_others", lambda: False),
    )


def mark_fails_hold_forgotten() -> AbstractContextManager[None]:
    """A user's hold is forgotten once it has been read, whether the job was marked or not."""
    real = HandOver.hand_over

    async def hand_over(self: HandOver, jobs: Any) -> Any:
        found = list(jobs)
        try:
            return await real(self, found)
        finally:
            self._holds.remove(list(self._holds.read()))

    return _patched(patch.object(HandOver, "hand_over", hand_over))


def hold_while_placed_dropped() -> AbstractContextManager[None]:
    """A hold that comes while jobs are placed is not looked for before the release, nor after."""

    async def release(self: HandOver, jobs: Any, why: Any) -> Any:
        return await self._verbs.release(why), set()

    return _patched(patch.object(HandOver, "release", release))


def hold_only_wakes() -> AbstractContextManager[None]:
    """The plugin says a user's hold through the wake pipe alone: without a reader it is gone."""
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
    """Headway holds as an operator does, so that a user's hold on top of it can never be taken off again."""

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
    """A held job without a mark is taken for one of Headway's."""
    real = role._held

    def held(job: SlurmJob, *, may_begin: bool) -> Any:
        if user_holds.USER_HOLD_MARK in job.marks or HOLD_MARK in job.marks:
            return real(job, may_begin=may_begin)
        return role.WAITING if may_begin else None

    return _patched(
        patch.object(role, "_held", held), patch.object(SlurmJob, "is_held_by_others", property(lambda self: False))
    )


def journal_of_another_version_ends_watchdog() -> AbstractContextManager[None]:
    """The watchdog needs a journal of its own version."""
    from controller.daemon.watchdog.watchdog import Watchdog
    from controller.state.journal_schema import JOURNAL

    def originals(path: Path) -> Mapping[Any, Any]:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version not in {0, JOURNAL.version}:
                raise TypeError("an unknown field")
        return read_originals(path)

    return _patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_known_originals", lambda self: self._originals()),
    )


def journal_of_another_version_ends_it() -> AbstractContextManager[None]:
    """A journal of another version ends the controller, again and again."""
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
    """A damaged journal ends the controller, again and again."""

    real = JournalFile._replaced

    def replaced(self: JournalFile, problem: UnusableFileError) -> sqlite3.Connection:
        if problem.kind == "damaged":
            raise JournalError("the journal is damaged")
        return real(self, problem)

    return _patched(patch.object(JournalFile, "_replaced", replaced))


def damaged_value_ends_it() -> AbstractContextManager[None]:
    """One value of the journal that is no JSON ends the controller, again and again."""
    real = Journal.load_ledger

    def load_ledger(self: Journal) -> Any:
        ledger = real(self)
        if self._not_understood:
            raise JournalError("a value of the journal cannot be read")
        return ledger

    return _patched(patch.object(Journal, "load_ledger", load_ledger))


def lost_update_on_a_journal_error() -> AbstractContextManager[None]:
    """What has changed since the snapshot before is forgotten when the journal cannot be written in that cycle."""
    real = LedgerKeeper.update

    def update(self: LedgerKeeper, snapshot: Any, settings: Any) -> Any:
        try:
            return real(self, snapshot, settings)
        except JournalError:
            self._scope = frozenset(settings.partitions)
            self.jobs, self._first = scoped(snapshot.jobs, self._scope), False
            raise

    return _patched(patch.object(LedgerKeeper, "update", update))


def bursts_are_taken_back() -> AbstractContextManager[None]:
    """All changes of a kind go to Slurm in one call; if it has no time for all, the jobs that were pinned are taken back."""

    async def run(self: Pieces, keys: Any, work: Any) -> Any:
        return await work(found) if (found := list(dict.fromkeys(keys))) else {}

    async def pins_failed(self: Applier, observation: Any, failed: Any) -> None:
        await self._own_requests.take_back(_reasons("could not be pinned", failed))

    return _patched(patch.object(Pieces, "run", run), patch.object(Applier, "_pins_failed", pins_failed))


def damaged_journal_ends_watchdog() -> AbstractContextManager[None]:
    """The watchdog needs a journal that it can read."""
    from controller.daemon.watchdog.watchdog import Watchdog

    def originals(path: Path) -> Mapping[Any, Any]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("SELECT job_id, submit_time_s, original FROM job").fetchall()
        return read_originals(path)

    return _patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_known_originals", lambda self: self._originals()),
    )


def damaged_value_ends_watchdog() -> AbstractContextManager[None]:
    """One value of the journal that is no JSON ends the watchdog."""
    from controller.daemon.watchdog.watchdog import Watchdog

    def originals(path: Path) -> Mapping[Any, Any]:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
            for (original,) in db.execute("SELECT original FROM job WHERE original IS NOT NULL").fetchall():
                json.loads(original)
        return read_originals(path)

    return _patched(
        patch("tests.campaign.world.cluster.read_originals", originals),
        patch.object(Watchdog, "_known_originals", lambda self: self._originals()),
    )


def moved_to_a_silent_node() -> AbstractContextManager[None]:
    """A job that was stopped is placed on a node whose agent is silent."""
    return _patched(patch.object(PreemptionManager, "kept_off", lambda self, jobs, snapshot: {}))


def watchdog_frees_users_jobs() -> AbstractContextManager[None]:
    """The watchdog releases every held job with a mark of ours, its users' own too."""

    def held(job: SlurmJob) -> bool:
        return job.phase.value == "pending" and job.held and "headway:" in job.admin_comment

    return _patched(
        patch("controller.daemon.watchdog.watchdog.is_held_by_headway", held),
        patch.object(
            SlurmJob, "is_held_by_others", property(lambda self: False)
        ),  # the clients' check is of a later time
    )


def unfit_node_for_ever() -> AbstractContextManager[None]:
    """A job is placed on the node that Slurm has just refused it on, and never given to Slurm."""
    return _patched(
        patch.object(Refusal, "unfit_nodes", lambda self, now_s: frozenset()),
        patch("controller.cycle.refusals.MOST_PLACES", 10**9),
    )


def impossible_where_placed() -> AbstractContextManager[None]:
    """A job that Slurm finds impossible on the nodes that Headway chose stays so (BadConstraints)."""
    return _patched(patch.object(SlurmJob, "is_impossible", property(lambda self: False)))


def own_request_not_restored() -> AbstractContextManager[None]:
    """A job that is given to Slurm still asks for the nodes that Headway chose."""

    async def restore(self: OwnRequests, keys: Any, *, stay: bool = False) -> Any:
        del stay
        for key in keys:
            self._ledger.originals.pop(key, None)
        return {}

    return _patched(patch.object(OwnRequests, "restore", restore))


def stopped_before_it_has_saved() -> AbstractContextManager[None]:
    """A job is stopped as soon as it has been asked to save."""
    return _patched(patch.object(PreemptionAttempt, "to_stop", lambda self, now: self.row.stopped_s is None))


def stopped_twice() -> AbstractContextManager[None]:
    """Where slurmctld did not answer to a stop, the job is stopped again, whatever has become of it."""

    real = EmbeddedClient._requeue_hold

    def requeue_hold(self: EmbeddedClient, job: Any) -> str | None:
        if job.phase is not Phase.ENDED:
            return real(self, job)
        comment = with_mark(job.admin_comment, HOLD_MARK)
        return commands.requeue(self._ctld, job, held=True) or self._comment(job, comment)

    return _patched(patch.object(EmbeddedClient, "_requeue_hold", requeue_hold))


def requests_by_id_alone() -> AbstractContextManager[None]:
    """A change is made to whatever job has the id now: the one that it was meant for may be gone."""

    def find(self: EmbeddedClient, key: Any) -> Any:
        return self._ctld.jobs.get(key.job_id)

    return _patched(patch.object(EmbeddedClient, "_find", find))


def tasks_die_silently() -> AbstractContextManager[None]:
    """A background task that fails is not begun again."""
    real = Tasks._keep

    async def keep(self: Tasks, name: str, work: Any, **how: Any) -> None:
        with contextlib.suppress(Exception):
            if name == "lease":
                await real(self, name, work, **how)
            else:
                await work()

    return _patched(patch.object(Tasks, "_keep", keep))


def clock_set_back_keeps_pauses() -> AbstractContextManager[None]:
    """After the clock was set back, a refused job waits until the time that was written down before."""
    return _patched(patch.object(role, "_is_true", lambda refusal, now_s: True))


def users_hold_overridden() -> AbstractContextManager[None]:
    """A job that its user has held since it was last read is marked, placed and released like any other.

    As it was then, a hold is written down only where Headway holds the job: the file alone would keep the hold.
    """
    real = SubmitPlugin.on_user_hold

    def on_user_hold(self: SubmitPlugin, job: Any, now_s: float) -> str | None:
        return real(self, job, now_s) if HOLD_MARK in job.admin_comment.split() else None

    return _patched(
        patch.object(SlurmJob, "is_held_by_others", property(lambda self: False)),
        patch.object(SubmitPlugin, "on_user_hold", on_user_hold),
    )


def reissued_id_inherits() -> AbstractContextManager[None]:
    """A new job with the id of a lost one is taken for it once it has been requeued, and gets its request."""
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
    journal_of_another_version_ends_watchdog,
    lost_update_on_a_journal_error,
    bursts_are_taken_back,
    damaged_value_ends_it,
    damaged_value_ends_watchdog,
    moved_to_a_silent_node,
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
"""Name on the command line → what puts the defect back."""

REVIEWS: Mapping[str, str] = {
    "exponent-overflows": "controller B1",
    "bursts-are-taken-back": "controller B2",
    "swap-ends-the-controller": "controller B3",
    "mark-fails-hold-forgotten": "controller B4",
    "hold-while-placed-dropped": "controller B4, campaign V4b",
    "journal-of-another-version-ends-it": "controller B5",
    "journal-of-another-version-ends-watchdog": "controller B5",
    "lost-update-on-a-journal-error": "controller B6",
    "tasks-die-silently": "controller B7",
    "damaged-journal-ends-it": "campaign V1",
    "damaged-value-ends-it": "campaign V1",
    "damaged-journal-ends-watchdog": "campaign V1",
    "damaged-value-ends-watchdog": "campaign V1",
    "moved-to-a-silent-node": "users 1",
    "users-cannot-release": "campaign V2",
    "unfit-node-for-ever": "campaign V3",
    "hold-only-wakes": "campaign V4a",
    "users-hold-overridden": "campaign V4c",
    "impossible-where-placed": "operators A2",
    "own-request-not-restored": "operators A2",
}
"""Defects that were found by reviews of an earlier version, and the number that they have there; all others were found since."""
