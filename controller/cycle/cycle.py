"""One cycle of the controller: observe, decide, plan, apply.

`Cycle.run` has the steps in their order. It reads Slurm once; jobs that it changes on the way are
read again one by one, so that slurmctld never sees a second bulk query for the same cycle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from controller.base.apart import apart
from controller.base.clock import Clock
from controller.base.config import ControllerSettings
from controller.base.events import EventLog
from controller.cycle.decision.decider import Decided, Decider
from controller.cycle.decision.decision_log import DecisionLog
from controller.cycle.decision.plan import Start
from controller.cycle.decision.policy_stops import PolicyStops
from controller.cycle.hold_files import HoldFiles
from controller.cycle.ledger_keeper import LedgerKeeper
from controller.cycle.room.partitions import where_they_fit
from controller.cycle.room.preemptions import BY_RULES, SlurmPreemption
from controller.cycle.settling import Settling
from controller.cycle.steps.applier import Applier
from controller.cycle.steps.errands import JobMarks, PreemptionErrands
from controller.cycle.steps.hand_over import HandOver
from controller.cycle.steps.own_requests import OwnRequests
from controller.cycle.steps.verbs import JournaledVerbs
from controller.cycle.view.result import CycleResult, is_in_transit
from controller.observe.knowledge import Knowledge
from controller.observe.observer import Observation, Observer
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import SlurmClient
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.user_holds import HoldFolder, Holds
from controller.state.journal import Journal
from controller.state.ledger import Ledger
from policies.model import ClusterState


class Cycle:
    """The path from Slurm to Slurm. Invariant: every waiting job is placed, left waiting by a policy, or given to Slurm."""

    def __init__(
        self,
        settings: Callable[[], ControllerSettings],
        client: SlurmClient,
        decider: Decider,
        journal: Journal,
        ledger: Ledger,
        events: EventLog,
        clock: Clock,
        preemptions: PreemptionManager,
        holds: HoldFolder,
        knowledge: Knowledge,
        progress: Callable[[], None] = lambda: None,
        before_change: Callable[[], None] = lambda: None,
        records_holds: Callable[[], bool] = lambda: True,
    ) -> None:
        """`progress` is called after each change that Slurm has made, also within a long cycle. `before_change` is called before
        each, and breaks off the cycle by an error. `records_holds`: see `Settling`."""
        self._settings = settings
        self._decider = decider
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._preemptions = preemptions
        self._knowledge = knowledge
        self._observer = Observer(knowledge)
        self._keeper = LedgerKeeper(journal, ledger, events)
        self._hold_files = HoldFiles(holds, events)
        self._stops = PolicyStops(preemptions, ledger, events, clock.monotonic)
        self._slurm_preemption = SlurmPreemption(
            preemptions, ledger, events, lambda: knowledge.preemption, self._stops.purposes
        )
        self._decisions = DecisionLog(journal, events, clock)
        self.verbs = JournaledVerbs(client, journal, events, clock, progress, before_change)
        own_requests = OwnRequests(self.verbs, journal, ledger, events, clock)
        hand_over = HandOver(client, self.verbs, holds, own_requests)
        self._applier = Applier(self.verbs, own_requests, hand_over, journal, ledger, events, clock)
        self._settling = Settling(
            client, self._applier, hand_over, self._keeper, journal, ledger, events, records_holds
        )
        self._errands = PreemptionErrands(self.verbs, preemptions)
        self._marks = JobMarks(self.verbs, preemptions)

    async def run(
        self, snapshot: SlurmSnapshot, holds: Holds | None = None, newest_step: int | None = None
    ) -> CycleResult:
        """Carry out the whole cycle for this snapshot.

        `holds`: users' holds, read before the snapshot. `newest_step`: number of the journal's newest step at that time.
        """
        begun_s = self._clock.monotonic()
        self._events.know(lambda: {job.key.job_id: job.user for job in snapshot.jobs})
        # What follows may fail, and no later snapshot shows these changes again.
        self._marks.note_started(self._keeper.update(snapshot, self._settings(), newest_step).started)
        self._applier.keep(self._keeper.jobs)
        self._preemptions.update(snapshot)
        with apart("files of holds"):
            self._hold_files.tidy(holds or {}, snapshot)
        await self._marks.clear_called_off()
        await self.errands()
        await self._marks.clear_started(self._keeper.jobs)
        observation = self._observe(snapshot)
        settled = await self._settling.settle(observation, self._settings().start_grace_s)
        if settled is not None:
            observation = self._observe_again(settled, observation)
        with apart("jobs of several partitions"):
            observation = where_they_fit(observation)
        waits = len(observation.state.pending) > 0 or self._may_resize(observation)
        seen = observation.state
        with apart("Slurm's preemption"):
            seen = self._slurm_preemption.withheld(observation)
        binds = partial(self._applier.binds, observation)
        decided = await self._decider.decide(seen, binds) if waits else None
        plan_s = self._clock.monotonic() - begun_s
        if waits:
            decided = await self._carry_out(observation, seen, decided)
        if decided is not None or not waits:  # the decision says for which other jobs they are stopped
            with apart("preemptions"):
                self._stops.purposes.call_off_useless(observation)
        in_transit = self._preemptions.moving or self._stops.decide_again or is_in_transit(observation, decided)
        unreported = self._keeper.unreported
        return CycleResult(observation, unreported.changes, unreported.runs, decided, in_transit, plan_s)

    def has_unreported(self, job_id: str) -> bool:
        """Return whether the job was seen to start or end, and the result of no cycle has reported it yet."""
        return self._keeper.unreported.has(job_id)

    def reported(self) -> None:
        """Note that the changes and runs of the last result are reported now; until then each further result has them too."""
        self._keeper.unreported.clear()

    async def errands(self) -> bool:
        """Stop and signal jobs that are preempted, between two cycles too. Returns whether Slurm has changed anything."""
        return await self._errands.run()

    def _may_resize(self, observation: Observation) -> bool:
        """Return whether the policy may resize a running job: then it decides also while no job waits."""
        spec, jobs = self._decider.spec, observation.state.jobs
        if spec is None or not (spec.resizes and spec.preempts) or jobs.min_gpus is None or jobs.max_gpus is None:
            return False
        return bool((jobs.preemptible & (jobs.min_gpus < jobs.max_gpus)).any())

    def _observe(self, snapshot: SlurmSnapshot) -> Observation:
        settings, jobs = self._settings(), self._keeper.jobs.values()
        preemptible = self._stops.preemptible(jobs, settings, self._clock.now())
        self._ledger.keep_off(self._preemptions.kept_off(jobs, snapshot))
        partitions = frozenset(settings.partitions)
        return self._observer.observe(
            snapshot, self._ledger, partitions, self._knowledge.measured, preemptible, self._preemptions.steps_done
        )

    def _observe_again(self, snapshot: SlurmSnapshot, before: Observation) -> Observation:
        """Observe the same queue after the changes of this cycle."""
        partitions = frozenset(self._settings().partitions)
        return self._observer.observe(
            snapshot, self._ledger, partitions, before.measured, before.preemptible, self._preemptions.steps_done
        )

    async def _carry_out(self, observation: Observation, seen: ClusterState, decided: Decided | None) -> Decided | None:
        """Carry out the decision, as far as one cycle may. Returns None when there is none: the jobs wait, or were given to
        Slurm. `seen`: the state that the policy saw."""
        if decided is None:
            # Until then the next cycle tries again: jobs wait no longer than while the controller is away.
            if self._decider.undecided_s >= self._settings().stale_after_s:
                rows = observation.state.pending.tolist()
                why = {observation.rows[row].key: "no policy could decide" for row in rows}
                await self._settling.give_to_slurm(observation, why)
            return None
        # A plan may start thousands of jobs: the next cycle decides again on those that are left out here.
        plan = decided.plan.within(lambda row: observation.rows[row].array_job_id, observation.array_room)
        decided = replace(decided, plan=plan.first(self.verbs.most_starts))
        with apart("records of decisions"):
            self._decisions.record(replace(observation, state=seen), decided)
        if decided.plan.starts:
            await self._applier.start(observation, decided.plan.starts, decided.policy)
        if decided.plan.stops:
            with apart("stops by policies"):
                self._stops.begin(decided.plan, observation, decided.policy, self._settings(), self._clock.now())
        plan = decided.plan
        starts: tuple[Start, ...] = ()
        with apart("Slurm's preemption"):
            plan, starts = self._slurm_preemption.added(observation, plan, self._settings(), self._clock.now())
        if starts:
            await self._applier.start(observation, starts, BY_RULES)
        return replace(decided, plan=replace(plan, starts=plan.starts + starts))
