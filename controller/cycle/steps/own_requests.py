"""Restores the users' own requests of jobs that were pinned and have not started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from controller.base.clock import Clock
from controller.base.errors import SlurmError
from controller.base.events import EventLog
from controller.cycle.refusals import Verdict, refused_again
from controller.cycle.steps.verbs import JournaledVerbs
from controller.slurm.client import Failures
from controller.slurm.model.job import JobKey
from controller.state.hidden_bounds import is_hidden_later
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from controller.state.user_changes import note_change_after_pin


class OwnRequests:
    """Undoes pins. Invariant: the ledger keeps a job's own request until Slurm has all of it again, and will show it."""

    def __init__(self, verbs: JournaledVerbs, journal: Journal, ledger: Ledger, events: EventLog, clock: Clock) -> None:
        self._verbs = verbs
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._clock = clock

    async def restore(self, keys: Iterable[JobKey], *, stay: bool = False) -> Failures:
        """Restore the own requests of held jobs, where Slurm may have a request by Headway. `stay`: they will be placed again."""
        originals = {key: self._ledger.originals[key] for key in keys if key in self._ledger.originals}
        if not originals:
            return {}
        failed = await self._verbs.unpin(originals)
        for key, original in originals.items():
            # A waiting job that has not run shows all of its request, also what its user changes.
            shown = stay and key not in self._ledger.served
            whole = key not in failed and not self._verbs.stays_bound(key, original)
            if whole and (shown or not is_hidden_later(original)):
                del self._ledger.originals[key]
        return failed

    async def note_changes(self, keys: Iterable[JobKey]) -> None:
        """Read placed jobs again before their pins are undone: their users may have changed them since the snapshot."""
        placed = [key for key in keys if key in self._ledger.pins and key in self._ledger.originals]
        if not placed:
            return
        try:
            found = await self._verbs.read(placed)
        except SlurmError:
            return  # slurmctld does not answer: a change since the snapshot is seldom, and the job must not stay bound
        changed = [key for key, job in found.items() if note_change_after_pin(job, self._ledger)]
        if changed:
            self._journal.save_jobs(self._ledger, changed)

    async def undo_pins(
        self,
        reasons: Mapping[JobKey, tuple[str, bool]],
        verdicts: Mapping[JobKey, Verdict] = MappingProxyType({}),
    ) -> None:
        """Undo the pins of held jobs. A job that Slurm has refused (True) waits before the next attempt.

        A job on hold is none that was given to Slurm, also where the controller ended while it gave it.

        `verdicts`: assessments of the jobs that Slurm itself did not start.
        """
        if not reasons:
            return
        await self.restore(reasons, stay=True)
        now_s = self._clock.now()
        for key, (reason, refused) in reasons.items():
            pin = self._ledger.pins.pop(key, None)
            self._ledger.yielded.pop(key, None)
            if not refused:
                continue
            verdict = verdicts.get(key, Verdict(reason))
            nodes = pin.nodes if pin is not None else ()
            refusal = refused_again(self._ledger.refusals.get(key), verdict, now_s, nodes)
            self._ledger.refusals[key] = refusal
            without = f", not on {refusal.unfit}" if verdict.blames_nodes and nodes else ""
            self._events.add(
                "held", key.job_id, f"{reason}; next attempt in {refusal.retry_at_s - now_s:.0f} s{without}"
            )
        self._journal.save_jobs(self._ledger, reasons)
