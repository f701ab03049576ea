"""Preemptions by policies: which running jobs policies may stop, and how their stops are begun.

A job that is about to leave its nodes (it has a request to save, is being stopped, or is ending) is also shown to policies as
preemptible. Otherwise, in the seconds until it has gone, a policy would assume that it stays, and stop another job in its place.

Jobs that make room together are stopped all or not at all: otherwise jobs would be stopped and the budget spent, and still no job
could start. Every bound is checked for all of them before the first gets a request to save. Some of them may then not save. Such a
job trains on, while the others are stopped and compete for their nodes with all waiting jobs: the next decision is made from that
state. None is stopped for a job for which that would be in vain (`Beneficiaries`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from controller.base.apart import apart, each
from controller.base.config import ControllerSettings
from controller.base.errors import PreemptionRefusedError
from controller.base.events import EventLog
from controller.base.text import count
from controller.cycle.decision.beneficiaries import Beneficiaries
from controller.cycle.decision.plan import Plan, Stop
from controller.cycle.decision.purposes import Purposes
from controller.cycle.decision.withheld import Withheld
from controller.observe.observer import Observation, left_to_slurm
from controller.preempt.budget import PreemptionBudget, leaves, may_be_preempted, reach_s
from controller.preempt.manager import PreemptionManager
from controller.profiles.current import run_of
from controller.profiles.windows import RunKey
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import Cause, Preemption, RelocationConstraint

_MOST_WORDS = 300

ToStop = tuple[RunKey, SlurmJob, Stop]
"""A run that is to be stopped, with its job and its stop."""


class PolicyStops:
    """Invariant: no job is stopped beyond the operator's bounds, no group only in part, and each refusal is reported once."""

    def __init__(
        self,
        preemptions: PreemptionManager,
        ledger: Ledger,
        events: EventLog,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._preemptions = preemptions
        self._ledger = ledger
        self._events = events
        self._withheld = Withheld(monotonic)
        self._beneficiaries = Beneficiaries(ledger, monotonic)
        self.purposes = Purposes(preemptions)
        """Waiting jobs for which jobs save."""
        self._passed_over = False
        """True if a waiting job was passed over since the last call of `preemptible`."""
        self._in_vain: dict[tuple[str, str], JobKey] = {}
        """Jobs for which it was reported that none is stopped for them, by the job whose refusal it is, and the reason. Bound:
        each call that may add one drops those of jobs that are gone."""
        self._refused: frozenset[RunKey] = frozenset()
        self._too_small: set[tuple[JobKey, int, bool]] = set()
        """Jobs for which a too small budget was reported, with that budget; True if it will suffice within the hour. Bound:
        each call that may add one drops those of jobs that are gone."""

    @property
    def decide_again(self) -> bool:
        """True if jobs were withheld or passed over just now: without them the policy may use the nodes in another way."""
        return self._withheld.fresh or self._passed_over

    def preemptible(self, jobs: Iterable[SlurmJob], settings: ControllerSettings, now_s: float) -> frozenset[RunKey]:
        """Return the runs of these jobs that policies may stop, or that are being stopped; empty where policies may stop none."""
        self._passed_over = False
        if "automatic" not in {settings.preemption, *settings.preemption_partitions.values()}:
            return self._withheld.without(frozenset())
        running = [job for job in jobs if job.phase is Phase.RUNNING]
        leaving = [job for job in jobs if job.phase is Phase.COMPLETING]
        may = may_be_preempted(
            running, settings, self._history(settings, now_s), self._preemptions.preemptibility, now_s
        )
        under_way = self._preemptions.open
        leaving += [job for job in running if leaves(job, under_way.get(job.raw_id or 0))]
        runs = each("preemptible jobs", leaving, run_of, lambda job: job.key.job_id)
        return self._withheld.without(may) | {run for run in runs if run is not None}

    def begin(
        self, plan: Plan, observation: Observation, policy: str, settings: ControllerSettings, now_s: float
    ) -> None:
        """Request the jobs that the policy stops or moves to save: group by group, each group as a whole.

        When the budget will suffice for a group within the hour, the groups behind it wait too: otherwise small groups would always
        spend the budget first. No group waits for one that is larger than a whole hour's budget.
        """
        bounds = PreemptionBudget(settings, self._history(settings, now_s), now_s)
        stops = {stop.row: stop for stop in plan.stops}
        refused: dict[RunKey, tuple[SlurmJob, str]] = {}
        passed_over: set[JobKey] = set()
        for group in plan.groups:
            found: dict[RunKey, tuple[SlurmJob, str]] = {}
            with apart("stops by policies", observation.rows[group.rows[0]].key.job_id if group.rows else ""):
                to_stop = self._to_stop([stops[row] for row in group.rows], observation)
                needed_by = None if group.needed_by is None else observation.rows[group.needed_by]
                if needed_by is not None and to_stop and self._is_in_vain(needed_by, to_stop, policy, passed_over):
                    continue
                found = self._refusals(to_stop, bounds, observation) or self._to_silent_nodes(to_stop, observation)
                if not found and len(to_stop) <= bounds.left:
                    found = self._begin_all(to_stop, needed_by, bounds, observation, policy)
                    if needed_by is not None and to_stop and to_stop[0][0] not in found:
                        self._beneficiaries.note(needed_by)
                elif not found:
                    budget = settings.preemption_budget_per_hour
                    waiting = to_stop[0][1] if needed_by is None else needed_by
                    self._report_too_small(waiting, policy, len(to_stop), bounds.left, budget)
                    self._withheld.withhold([run for run, _, _ in to_stop], all_others=len(to_stop) <= budget)
                    if len(to_stop) <= budget:
                        break
            refused |= found
        self.purposes.note(plan, observation)
        self._beneficiaries.pass_over(passed_over, now_s)
        self._passed_over = bool(passed_over)
        self._report_refused(refused, policy)
        self._forget_gone(observation)

    def _is_in_vain(
        self, needed_by: SlurmJob, to_stop: Sequence[ToStop], policy: str, passed_over: set[JobKey]
    ) -> bool:
        """Return whether nothing is stopped for this waiting job now, and report why.

        It is added to `passed_over` if it was refused; otherwise the jobs that were to make room are withheld.
        """
        why_not = self._beneficiaries.why_not(needed_by)
        if not why_not:
            return False
        refusal = self._ledger.refusals.get(needed_by.key)
        if refusal is not None:
            passed_over.add(needed_by.key)
        else:
            self._withheld.withhold([run for run, _, _ in to_stop], all_others=False)
        case = needed_by.key.job_id if refusal is None or not refusal.like else refusal.like, why_not
        if case not in self._in_vain:
            self._in_vain[case] = needed_by.key
            text = f"{policy} would stop {count(len(to_stop), 'job')} for it, but {why_not}"
            self._events.add("preempt", needed_by.key.job_id, text)
        return True

    def _forget_gone(self, observation: Observation) -> None:
        self._too_small = {case for case in self._too_small if case[0] in observation.jobs}
        self._in_vain = {case: key for case, key in self._in_vain.items() if key in observation.jobs}
        self._beneficiaries.forget(observation.jobs.keys())

    def _to_stop(self, stops: Iterable[Stop], observation: Observation) -> list[ToStop]:
        """Return the stops that have to be begun. A job that is being stopped already needs none, whatever the cause."""
        under_way, rows = self._preemptions.open, observation.rows
        return [
            (run, job, stop)
            for stop in stops
            if (job := rows[stop.row]).phase is Phase.RUNNING
            and (run := run_of(job)) is not None
            and not leaves(job, under_way.get(run.job_id))
        ]

    def _refusals(
        self, to_stop: Sequence[ToStop], bounds: PreemptionBudget, observation: Observation
    ) -> dict[RunKey, tuple[SlurmJob, str]]:
        """Return the jobs that may not be stopped, and reasons that continue "it "; the budget is not checked."""
        found = {
            run: (
                job,
                bounds.own_refusal(job)
                or self._preemptions.preemptibility(job).why_not
                or (left_to_slurm(observation, job) if stop.placement is not None else ""),
            )
            for run, job, stop in to_stop
        }
        others = (
            f"; so {count(len(to_stop) - 1, 'other job')} of its group are not stopped either"
            if len(to_stop) > 1
            else ""
        )
        return {run: (job, why_not + others) for run, (job, why_not) in found.items() if why_not}

    def _to_silent_nodes(
        self, to_stop: Sequence[ToStop], observation: Observation
    ) -> dict[RunKey, tuple[SlurmJob, str]]:
        """Return the jobs that would be moved to nodes whose agents are silent, and the reason why they are not."""
        silent, names = self._preemptions.silent(observation.snapshot), observation.state.nodes.names
        found: dict[RunKey, tuple[SlurmJob, str]] = {}
        for run, job, stop in to_stop if silent else ():
            nodes = () if stop.placement is None else stop.placement.nodes
            there = sorted(name for node in nodes if (name := names[node]) in silent)
            if there:
                found[run] = job, f"would go to {there[0]}, where the agent is not connected"
        return found

    def _begin_all(
        self,
        to_stop: Sequence[ToStop],
        needed_by: SlurmJob | None,
        bounds: PreemptionBudget,
        observation: Observation,
        policy: str,
    ) -> dict[RunKey, tuple[SlurmJob, str]]:
        """Begin all stops. Returns the first that is refused; those behind it are not begun, those before it stay."""
        for run, job, stop in to_stop:
            why_not = self._begin(stop, job, needed_by, observation, policy)
            if why_not:
                return {run: (job, why_not)}
            bounds.take(job)
        return {}

    def _begin(
        self, stop: Stop, job: SlurmJob, needed_by: SlurmJob | None, observation: Observation, policy: str
    ) -> str:
        """Begin one stop. Returns a reason that continues "it " if it is refused; empty: the job has the request to save."""
        because = f": {stop.reason}" if stop.reason else ""
        constraint = _constraint(stop, observation)
        wants = "to wait" if stop.placement is None else "on other nodes"
        if constraint.gpus is not None:
            wants = f"with {count(constraint.gpus, 'GPU')}"
        try:
            why = f"{policy} wants it {wants}{because}"
            begun = self._preemptions.begin(job, Cause.POLICY, why[:_MOST_WORDS], constraint)
        except PreemptionRefusedError as error:
            return error.why_not
        if needed_by is not None:
            self.purposes.add(begun, needed_by.key)
        return ""

    def _report_refused(self, refused: Mapping[RunKey, tuple[SlurmJob, str]], policy: str) -> None:
        for run in refused.keys() - self._refused:
            job, why_not = refused[run]
            self._events.add(
                "preempt", job.key.job_id, f"stays on its nodes, although {policy} would stop it: it {why_not}"
            )
        self._refused = frozenset(refused)

    def _report_too_small(self, job: SlurmJob, policy: str, number: int, left: int, budget: int) -> None:
        """Report a too small budget, once for each job: the job that waits for the group, or else the first of the group."""
        case = (job.key, budget, number <= budget)
        if case in self._too_small:
            return
        self._too_small.add(case)
        purpose = "for it" if job.phase is Phase.PENDING else "together with it"
        if number <= budget:
            why = (
                f"all or none, and {left} more may be stopped within this hour (preemption_budget_per_hour is {budget})"
            )
        else:
            why = (
                f"all or none, and preemption_budget_per_hour is {budget}: they are never stopped; "
                f"raise it to {number} or more to allow it"
            )
        self._events.add("preempt", job.key.job_id, f"{policy} would stop {count(number, 'job')} {purpose}, {why}")

    def _history(self, settings: ControllerSettings, now_s: float) -> list[Preemption]:
        """Return all preemptions that matter for the bounds, open ones too."""
        found = {row.number: row for row in self._preemptions.since(now_s - reach_s(settings))}
        return list((found | {row.number: row for row in self._preemptions.open.values()}).values())


def _constraint(stop: Stop, observation: Observation) -> RelocationConstraint:
    """Return where the stopped job goes. A job in another size goes where the policy then places it."""
    if stop.placement is None:
        return RelocationConstraint()
    if stop.placement.num_gpus != observation.state.jobs.num_gpus[stop.row]:
        return RelocationConstraint(gpus=stop.placement.num_gpus)
    names = observation.state.nodes.names
    return RelocationConstraint(only=frozenset(names[node] for node in stop.placement.nodes))
