"""Jobs that policies take off their nodes: which they may, and what becomes of it.

Whoever is about to leave (asked to save, being stopped, ending) is shown to policies as preemptible as well. Else, in the seconds
until it has gone, a policy would take it for one that stays, and stop another job in its place.
"""

from __future__ import annotations

from collections.abc import Iterable

from controller.allowance import UNDER_WAY, Allowance, may_be_preempted, reach_s
from controller.config import ControllerSettings
from controller.contention import run_of
from controller.errors import PreemptionRefusedError
from controller.events import EventLog
from controller.observe import Observation
from controller.plan import Stop
from controller.preempting import Preempting
from controller.preemption import Cause, Elsewhere, Preemption
from controller.slurm.client import Phase, SlurmJob
from controller.windows import RunKey

_MOST_WORDS = 300


class PolicyStops:
    """Invariant: nobody is stopped for a policy beyond the operator's bounds, and each refusal is told once."""

    def __init__(self, preempting: Preempting, events: EventLog) -> None:
        self._preempting = preempting
        self._events = events
        self._refused: frozenset[RunKey] = frozenset()

    def preemptible(self, jobs: Iterable[SlurmJob], settings: ControllerSettings, now_s: float) -> frozenset[RunKey]:
        """Runs among these that policies may take off their nodes, or that leave anyway. None where policies may stop nobody."""
        if "automatic" not in {settings.preemption, *settings.preemption_partitions.values()}:
            return frozenset()
        running = [job for job in jobs if job.phase is Phase.RUNNING]
        leaving = [job for job in jobs if job.phase is Phase.COMPLETING]
        may = may_be_preempted(running, settings, self._history(settings, now_s), self._preempting.comeback, now_s)
        under_way = self._preempting.open
        leaving += [job for job in running if _leaves(job, under_way.get(job.raw_id or 0))]
        return may | {run for job in leaving if (run := run_of(job)) is not None}

    def begin(
        self, stops: Iterable[Stop], observation: Observation, policy: str, settings: ControllerSettings, now_s: float
    ) -> None:
        """Ask the jobs to save that the policy does not want where they are."""
        bounds = Allowance(settings, self._history(settings, now_s), now_s)
        refused: set[RunKey] = set()
        for stop in stops:
            job = observation.rows[stop.row]
            run = run_of(job)
            if run is None or job.phase is not Phase.RUNNING or _leaves(job, self._preempting.open.get(run.job_id)):
                continue  # it goes already
            why_not = bounds.refusal(job) or self._begin(stop, job, observation, policy)
            if not why_not:
                bounds.take(job)
                continue
            refused.add(run)
            if run not in self._refused:
                self._events.add(
                    "preempt", job.key.job_id, f"is left where it is, though {policy} would stop it: it {why_not}"
                )
        self._refused = frozenset(refused)

    def _begin(self, stop: Stop, job: SlurmJob, observation: Observation, policy: str) -> str:
        """Why not, in words that go behind "it "; empty: it was asked."""
        names = observation.state.nodes.names
        only = frozenset() if stop.placement is None else frozenset(names[node] for node in stop.placement.nodes)
        because = f": {stop.reason}" if stop.reason else ""
        why = f"{policy} wants it {'to wait' if stop.placement is None else 'elsewhere'}{because}"
        try:
            self._preempting.begin(job, Cause.POLICY, why[:_MOST_WORDS], Elsewhere(only=only))
        except PreemptionRefusedError as error:
            return str(error).removeprefix(f"job {job.key.job_id} ")
        return ""

    def _history(self, settings: ControllerSettings, now_s: float) -> list[Preemption]:
        """All that matters for the bounds, what is open too."""
        found = {row.number: row for row in self._preempting.since(now_s - reach_s(settings))}
        return list((found | {row.number: row for row in self._preempting.open.values()}).values())


def _leaves(job: SlurmJob, under_way: Preemption | None) -> bool:
    """Whether that run of the job is about to be stopped."""
    return under_way is not None and under_way.stage in UNDER_WAY and under_way.restarts == job.restarts
