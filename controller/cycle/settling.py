"""Handles holds, refusals and jobs that only Slurm can place before the policy decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from controller.base.apart import apart, together_or_apart
from controller.base.events import EventLog
from controller.base.text import count
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.cycle.limit_backoff import jobs_of_same_limit
from controller.cycle.outdated_pins import outdated_pins
from controller.cycle.refusals import hopeless, overdue
from controller.cycle.steps.applier import Applier
from controller.cycle.steps.hand_over import HandOver
from controller.cycle.stranded import beyond_limits, stranded
from controller.observe.observer import Observation
from controller.slurm.client import Failure, SlurmClient
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey
from controller.slurm.user_holds import has_hold_recorded
from controller.state.journal import Journal
from controller.state.ledger import Ledger

T = TypeVar("T")


class Settling:
    """Brings the queue into a state on which a policy can decide.

    Invariant: jobs that were changed are read again one by one, so that slurmctld never sees a second bulk query in a cycle.
    """

    def __init__(
        self,
        client: SlurmClient,
        applier: Applier,
        hand_over: HandOver,
        keeper: LedgerKeeper,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        records_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`records_holds` returns whether job_submit.lua records the holds of jobs without our marks, which needs a fresh lease."""
        self._client = client
        self._applier = applier
        self._hand_over = hand_over
        self._keeper = keeper
        self._journal = journal
        self._ledger = ledger
        self._events = events
        self._records_holds = records_holds

    async def settle(self, observation: Observation, start_grace_s: float) -> SlurmSnapshot | None:
        """Prepare the queue for a decision. Returns the snapshot with the changed jobs; None if nothing has changed.

        `start_grace_s`: seconds that Slurm has to start a released job.
        """
        handed = await self._hand_over.hand_over(observation.jobs.values())
        interrupted = [key for key in observation.twice_marked if key not in handed]
        await self._hand_over.finish(interrupted)
        changed = [*handed, *interrupted, *await self._adopt(observation, handed)]
        outdated = {key: why for key, why in outdated_pins(observation, self._ledger).items() if key not in handed}
        if outdated:
            await self._each("jobs to place again", outdated, self._applier.take_back)
            changed += outdated
        settled, may_give = handed | outdated.keys(), self._applier.may_give
        to_slurm = {key: why for key, why in observation.to_yield.items() if key not in settled and may_give(key)}
        refused = overdue(observation, self._ledger, start_grace_s)
        refused = {key: why for key, why in refused.items() if key not in settled}
        if refused:
            alike = jobs_of_same_limit(observation, refused, self._ledger)
            await self._each("refused jobs", refused, self._applier.refuse)
            self._applier.refuse_alike(alike)
            to_slurm |= hopeless(refused, self._ledger)
            changed += refused
        if to_slurm:
            await self.give_to_slurm(observation, to_slurm)
            changed += to_slurm
        ours = False
        with apart("relocated jobs"):
            if free_again := stranded(observation, self._ledger):
                ours = True
                self._clear_constraints(free_again)
        with apart("sizes of jobs"):
            if other_sizes := beyond_limits(observation, self._ledger):
                ours = True
                self._set_sizes(other_sizes)
        return await self._read_again(observation.snapshot, changed) if changed or ours else None

    async def give_to_slurm(self, observation: Observation, why: Mapping[JobKey, str]) -> None:
        """Release jobs as they are, for Slurm to place."""
        await self._each("jobs given to Slurm", why, partial(self._applier.give_to_slurm, observation.jobs))

    async def _each(
        self, part: str, jobs: Mapping[JobKey, T], do: Callable[[dict[JobKey, T]], Awaitable[None]]
    ) -> None:
        """Do it for these jobs in one step; after an unexpected error, for each alone."""

        async def some(keys: Sequence[JobKey]) -> None:
            await do({key: jobs[key] for key in keys})

        await together_or_apart(part, list(jobs), some, lambda key: key.job_id)

    async def _adopt(self, observation: Observation, handed: set[JobKey]) -> list[JobKey]:
        """Take jobs into the queue. Returns those that were taken.

        A user's hold that comes between the reading of a job and our hold is found only in its file. job_submit.lua writes none for
        jobs without a mark while the lease is stale, so these wait for a later cycle: when a controller starts, or stood still, its
        first good cycle lets the lease be renewed.
        """
        keys = [key for key in observation.to_adopt if key not in handed]
        if keys and not self._records_holds():
            keys = [key for key in keys if has_hold_recorded(observation.jobs[key])]
        failed: dict[JobKey, Failure] = {}

        async def adopt(some: Sequence[JobKey]) -> None:
            failed.update(await self._applier.adopt([observation.jobs[key] for key in some]))

        left_out = await together_or_apart("jobs to hold", keys, adopt, lambda key: key.job_id) if keys else []
        return [key for key in keys if key not in failed and key not in left_out]

    def _clear_constraints(self, reasons: Mapping[JobKey, str]) -> None:
        for key, why in reasons.items():
            self._ledger.clear_constraint(key)
            self._events.add("preempt", key.job_id, why)
        self._journal.save_jobs(self._ledger, reasons)

    def _set_sizes(self, sizes: Mapping[JobKey, int | None]) -> None:
        for key, gpus in sizes.items():
            before = self._ledger.relocations[key].gpus
            self._ledger.set_size(key, gpus)
            now = "as many GPUs as it asks for" if gpus is None else count(gpus, "GPU")
            self._events.add("preempt", key.job_id, f"gets {now}, and not {before}, which its user no longer allows")
        self._journal.save_jobs(self._ledger, sizes)

    async def _read_again(self, snapshot: SlurmSnapshot, keys: Sequence[JobKey]) -> SlurmSnapshot:
        fresh = await self._client.read(keys)
        wanted = set(keys)
        kept = [fresh.get(job.key, job) if job.key in wanted else job for job in snapshot.jobs]
        known = {job.key for job in snapshot.jobs}
        # A change turns a task of an array into a job of its own, with the same key.
        kept += [job for key, job in fresh.items() if key not in known]
        jobs = tuple(kept)
        self._keeper.refresh(job for job in jobs if job.key in wanted)
        return replace(snapshot, jobs=jobs)
