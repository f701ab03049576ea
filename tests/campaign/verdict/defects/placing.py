"""Defects in placing and stopping jobs, and in background tasks.

Each function puts one of them back for as long as its context lasts. What they do is described as in the reviews.
"""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from controller.cycle.decision.decider import Decider
from controller.cycle.steps.applier import Applier, _reasons
from controller.cycle.steps.own_requests import OwnRequests
from controller.observe import role
from controller.preempt.attempts.attempt import PreemptionAttempt
from controller.preempt.manager import PreemptionManager
from controller.slurm.embedded.client import EmbeddedClient, with_mark
from controller.slurm.embedded.ctld import commands
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.updates.pieces import Pieces
from controller.state.ledger import Refusal
from policies.serving.runtime.tasks.backoff import Backoff
from policies.serving.runtime.tasks.supervise import Tasks
from tests.campaign.verdict.defects.patches import patched


def exponent_overflows() -> AbstractContextManager[None]:
    """The pause of a refused job is a power that overflows (after 3.6 days; here after three refusals)."""

    def pause_s(self: Backoff, doublings: int) -> float:
        if self.longest_s >= role.LAST_RETRY_S and doublings >= 3:
            raise OverflowError(34, "Numerical result out of range")
        return min(self.first_s * 2.0**doublings, self.longest_s)

    return patched(patch.object(Backoff, "pause_s", pause_s))


def swap_ends_the_controller() -> AbstractContextManager[None]:
    """`headway policy use` cancels the call under way, and the controller treats that as its own end."""
    real = Decider.use

    async def use(self: Decider, endpoint: Any, state: Any) -> Any:
        old = self._server.endpoint
        spec = await real(self, endpoint, state)
        await old.close()
        return spec

    return patched(
        patch.object(Decider, "use", use),
        patch("policies.serving.runtime.tasks.supervise.cancelled_by_others", lambda: False),
    )


def bursts_are_taken_back() -> AbstractContextManager[None]:
    """All changes of a kind go to Slurm in one call; if it has no time for all, the jobs that were pinned are taken back."""

    async def run(self: Pieces, keys: Any, work: Any) -> Any:
        return await work(found) if (found := list(dict.fromkeys(keys))) else {}

    async def pins_failed(self: Applier, observation: Any, failed: Any) -> None:
        await self._own_requests.undo_pins(_reasons("could not be pinned", failed))

    return patched(patch.object(Pieces, "run", run), patch.object(Applier, "_pins_failed", pins_failed))


def moved_to_a_silent_node() -> AbstractContextManager[None]:
    """A job that was stopped is placed on a node whose agent is silent."""
    return patched(patch.object(PreemptionManager, "kept_off", lambda self, jobs, snapshot: {}))


def unfit_node_for_ever() -> AbstractContextManager[None]:
    """A job is placed again on the node on which Slurm has just refused it, and is never given to Slurm."""
    return patched(
        patch.object(Refusal, "unfit_nodes", lambda self, now_s: frozenset()),
        patch("controller.cycle.refusals.MOST_PLACES", 10**9),
    )


def impossible_where_placed() -> AbstractContextManager[None]:
    """A job that Slurm calls impossible on the nodes that Headway chose stays so (BadConstraints)."""
    return patched(patch.object(SlurmJob, "is_impossible", property(lambda self: False)))


def own_request_not_restored() -> AbstractContextManager[None]:
    """A job that is given to Slurm still requests the nodes that Headway chose."""

    async def restore(self: OwnRequests, keys: Any, *, stay: bool = False) -> Any:
        del stay
        for key in keys:
            self._ledger.originals.pop(key, None)
        return {}

    return patched(patch.object(OwnRequests, "restore", restore))


def stopped_before_it_has_saved() -> AbstractContextManager[None]:
    """A job is stopped as soon as the request to save was sent."""
    return patched(patch.object(PreemptionAttempt, "to_stop", lambda self, now: self.row.stopped_s is None))


def stopped_twice() -> AbstractContextManager[None]:
    """If slurmctld did not answer to a stop, the job is stopped again, whatever its state is."""

    real = EmbeddedClient._requeue_hold

    def requeue_hold(self: EmbeddedClient, job: Any) -> str | None:
        if job.phase is not Phase.ENDED:
            return real(self, job)
        comment = with_mark(job.admin_comment, HOLD_MARK)
        return commands.requeue(self._ctld, job, held=True) or self._comment(job, comment)

    return patched(patch.object(EmbeddedClient, "_requeue_hold", requeue_hold))


def requests_by_id_alone() -> AbstractContextManager[None]:
    """A change is made to the job that has the id now, although the intended job may be lost."""

    def find(self: EmbeddedClient, key: Any) -> Any:
        return self._ctld.jobs.get(key.job_id)

    return patched(patch.object(EmbeddedClient, "_find", find))


def tasks_die_silently() -> AbstractContextManager[None]:
    """A background task that fails is not restarted."""
    real = Tasks._keep

    async def keep(self: Tasks, name: str, work: Any, scope: Any, *, may_end: bool, failed: Any) -> None:
        with contextlib.suppress(Exception):
            if name == "lease":
                await real(self, name, work, scope, may_end=may_end, failed=failed)
            else:
                await work()

    return patched(patch.object(Tasks, "_keep", keep))


def clock_set_back_keeps_pauses() -> AbstractContextManager[None]:
    """After the clock was set back, a refused job waits until the time that was recorded before."""
    return patched(patch.object(role, "_is_true", lambda refusal, now_s: True))


def reissued_id_inherits() -> AbstractContextManager[None]:
    """A new job with the id of a lost job counts as that job once it has been requeued, and gets its request."""
    return patched(
        patch("controller.cycle.ledger_keeper.may_be_same", lambda job, former, ledger: True),
        patch("controller.cycle.changes.is_same_request", lambda one, other: True),
        # The checks of birthmarks are of a later time.
        patch("controller.cycle.changes.are_of_two_jobs", lambda birthmark, other: False),
        patch("controller.cycle.ledger_keeper.is_another", lambda job, former, ledger: False),
    )
