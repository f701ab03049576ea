"""Carries out Slurm's preemption for the jobs that Headway holds, which Slurm does not see waiting.

A job whose place another one takes is stopped by Headway where it can save and Slurm would requeue it. Otherwise Slurm stops it:
the waiting job is bound to the nodes and released, and Slurm then preempts there by its own rules (measured on 22.05: the other
job is ended within a second, and the released one runs two seconds later). Slurm stops no job if the released one cannot start
with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from controller.base.config import ControllerSettings
from controller.base.errors import PreemptionRefusedError
from controller.base.events import EventLog
from controller.base.text import listed
from controller.cycle.decision.plan import Plan, Start
from controller.cycle.decision.purposes import Purposes
from controller.cycle.room.claims import Claim, index_of, is_wanted, place_within
from controller.cycle.room.queue import Cluster, Wanted
from controller.observe.observer import Observation
from controller.observe.role import Role
from controller.preempt.budget import leaves, mode_of
from controller.preempt.manager import PreemptionManager
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.priorities.preemption import PreemptionRules, StopMode
from controller.state.ledger import NODES_AWAY, Ledger
from controller.state.preemption import Cause, EndReason, Stage
from policies.model import ClusterState

BY_RULES = "Slurm's rules of preemption"
"""Stands for the policy that placed a job in the place of others."""
_MARGIN_S = 30.0
"""Time that Slurm may need beyond the grace of a stopped job, seconds: it looks for jobs whose grace is over every few seconds."""
_NAMED = 3


@dataclass(slots=True)
class _Turn:
    """Facts and decisions of one cycle. Bound: lives for one cycle."""

    observation: Observation
    rules: PreemptionRules
    cluster: Cluster
    settings: ControllerSettings
    now_s: float
    starts: list[Start] = field(default_factory=list)
    making_room: dict[int, str] = field(default_factory=dict)
    """Jobs that go on waiting until others are stopped, by row, and which others."""


class SlurmPreemption:
    """Preemptions by Slurm's rules. Invariant: no job is stopped unless the job that it is stopped for has room afterwards."""

    def __init__(
        self,
        preemptions: PreemptionManager,
        ledger: Ledger,
        events: EventLog,
        rules: Callable[[], PreemptionRules | None],
        purposes: Purposes,
    ) -> None:
        self._preemptions = preemptions
        self._purposes = purposes
        self._ledger = ledger
        self._events = events
        self._rules = rules
        self._claims: dict[JobKey, Claim] = {}
        """Nodes that are becoming empty for each job. Bound: the jobs that waited at the last plan."""
        self._stopping: dict[JobKey, tuple[JobKey, float]] = {}
        """Jobs that Slurm stops, the job for which, and the time until which Slurm may need for that.
        Bound: those that are stopped for jobs which are starting."""

    def withheld(self, observation: Observation) -> ClusterState:
        """Return the state for the policy: nodes that are emptied for a job that waits take no others."""
        state = observation.state
        if not self._claims:
            return state
        self._drop_claims(observation)
        claimed = {node for claim in self._claims.values() for node in claim.nodes}
        barred = np.array([name in claimed for name in state.nodes.names], dtype=np.bool_)
        return replace(state, nodes=replace(state.nodes, available=state.nodes.available & ~barred))

    def _drop_claims(self, observation: Observation) -> None:
        """Drop the claims of jobs that no longer wait, or cannot start there as they are now."""
        waits = {observation.rows[row].key: row for row in observation.state.pending.tolist()}
        index = index_of(observation)
        for key, claim in list(self._claims.items()):
            if key in waits and is_wanted(claim, observation, waits[key], index):
                continue
            del self._claims[key]
            if key in waits:
                why = "its request, or the nodes that it may use, have changed"
                nodes = listed(claim.nodes, _NAMED)
                self._events.add("preempt", key.job_id, f"gives up {nodes}, which others leave for it: {why}")

    def added(
        self, observation: Observation, plan: Plan, settings: ControllerSettings, now_s: float
    ) -> tuple[Plan, tuple[Start, ...]]:
        """Return the plan without the jobs that take others' places now, and the starts of these; begin Headway's own stops."""
        rules = self._rules()
        self._forget_stopped(observation, now_s)
        if rules is None or not plan.queue:
            self._claims.clear()
            return plan, ()
        cluster = Cluster(observation, rules, self._leaves, plan.starts)
        turn = _Turn(observation, rules, cluster, settings, now_s)
        self._settle_claims(turn, {observation.rows[row].key: row for row in plan.queue})
        settled = {start.row for start in turn.starts} | turn.making_room.keys()
        if cluster.candidates:
            for wanted in cluster.wanted(row for row in plan.queue if row not in settled):
                if wanted.room.stops:
                    self._take(turn, wanted)
        started = {start.row for start in turn.starts}
        queue = tuple(row for row in plan.queue if row not in started)
        return replace(plan, queue=queue, making_room=turn.making_room), tuple(turn.starts)

    def _settle_claims(self, turn: _Turn, waits: Mapping[JobKey, int]) -> None:
        """Start the jobs whose nodes are empty now, and let the others wait for theirs as long as they can become empty.

        The claim of a job that is started stays until the job no longer waits, because its start may fail.
        """
        index, capacity = index_of(turn.observation), turn.cluster.capacity
        later = capacity.without(one.leaves for one in turn.cluster.leaving)
        for key, claim in list(self._claims.items()):
            del self._claims[key]
            if key not in waits or turn.now_s >= claim.until_s:
                continue
            row = waits[key]
            if (found := place_within(claim, turn.observation, row, index, capacity, capacity)) is not None:
                turn.starts.append(Start(row, found[1], claim.why))
            elif (found := place_within(claim, turn.observation, row, index, later, capacity)) is not None:
                turn.making_room[row] = claim.why
            else:
                continue  # a job on these nodes was not stopped
            self._claims[key] = claim
            capacity.take(*found)
            later.take(*found)

    def _take(self, turn: _Turn, wanted: Wanted) -> None:
        """Stop the jobs that can save; where there are none, let Slurm stop all of them."""
        rows, names, place = turn.observation.rows, turn.observation.state.nodes.names, wanted.room.placement
        job, others = rows[wanted.row], [one.job for one in wanted.room.stops]
        rule = turn.rules.because(job, others)
        saving = [] if self._is_refused(job) else [other for other in others if self._can_save(turn, other)]
        if begun := self._begin(saving, job, rule):
            why = f"{_jobs(begun)} saved and stopped for it: {rule}"
            until_s = turn.now_s + turn.settings.preemption_within_s + _MARGIN_S
            self._claims[job.key] = Claim.of(job, place, names, until_s, why)
            turn.making_room[wanted.row] = why
            return
        partitions = turn.cluster.partitions
        frees_s = max(turn.rules.grace_s(other, partitions) for other in others) + turn.rules.kill_s + _MARGIN_S
        turn.starts.append(Start(wanted.row, place, f"{_jobs(others)} stopped by Slurm for it: {rule}", frees_s))
        for other in others:
            self._stopping[other.key] = job.key, turn.now_s + frees_s
            self._events.add("preempt", other.key.job_id, f"Slurm stops it for job {job.key.job_id}: {rule}")

    def _is_refused(self, job: SlurmJob) -> bool:
        """Return whether Slurm has refused the job, so that others may save for it in vain: Slurm checks limits before it stops
        jobs. Where only the nodes were away, it is tried on others now."""
        refusal = self._ledger.refusals.get(job.key)
        if refusal is None or refusal.is_for_boot:
            return False
        return not refusal.slurm_reason.startswith(NODES_AWAY)

    def _begin(self, saving: Iterable[SlurmJob], job: SlurmJob, rule: str) -> list[SlurmJob]:
        """Request the jobs to save. Returns those that do."""
        begun = []
        for other in saving:
            with suppress(PreemptionRefusedError):
                row = self._preemptions.begin(other, Cause.SLURM, f"job {job.key.job_id} takes its place: {rule}")
                self._purposes.add(row, job.key)
                begun.append(other)
        return begun

    def _can_save(self, turn: _Turn, job: SlurmJob) -> bool:
        """Return whether Headway stops the job itself: it may be preempted, and has not failed to save for another in this run."""
        if turn.rules.stop_mode(job, turn.cluster.partitions) is not StopMode.REQUEUE:
            return False
        if mode_of(turn.settings, job.partition) != "automatic" or not self._preemptions.preemptibility(job).may:
            return False
        tried = (row for row in self._preemptions.recent(job) if row.reason is not EndReason.NOT_NEEDED)
        row = next(tried, None)
        return row is None or not (
            row.cause is Cause.SLURM and row.stage is Stage.CALLED_OFF and row.restarts == job.restarts
        )

    def _forget_stopped(self, observation: Observation, now_s: float) -> None:
        """Forget the jobs that Slurm stops no longer, because the job for which it did has started, or was taken back."""
        self._stopping = {
            key: (by, until_s)
            for key, (by, until_s) in self._stopping.items()
            if by in observation.standings and observation.standings[by].role is Role.STARTING and now_s < until_s
        }

    def _leaves(self, job: SlurmJob) -> bool:
        return job.key in self._stopping or leaves(job, self._preemptions.open.get(job.raw_id or 0))


def _jobs(jobs: Iterable[SlurmJob]) -> str:
    names = [job.key.job_id for job in jobs]
    return f"job {names[0]} is" if len(names) == 1 else f"jobs {listed(names, _NAMED)} are"
