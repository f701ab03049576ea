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
from controller.cycle.decision.policy_stops import leaves
from controller.cycle.room.capacity import Need
from controller.cycle.room.queue import Cluster, Wanted
from controller.observe.observer import Observation
from controller.observe.role import Role
from controller.preempt.budget import mode_of
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import JobKey, SlurmJob
from controller.slurm.priorities.preemption import PreemptionRules, StopMode
from controller.state.ledger import Ledger
from controller.state.preemption import Cause, Stage
from policies.model import ClusterState, Placement

BY_RULES = "Slurm's rules of preemption"
"""Stands for the policy that placed a job in the place of others."""
_MARGIN_S = 30.0
"""Time that Slurm may need beyond the grace of a stopped job, seconds: it looks for jobs whose grace is over every few seconds."""
_NAMED = 3
_ANY_NODE = -1


@dataclass(frozen=True, slots=True)
class _Claim:
    """Nodes that Headway empties for a waiting job, and the GPUs on each."""

    nodes: tuple[str, ...]
    gpus: tuple[int, ...]
    until_s: float
    why: str


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
    ) -> None:
        self._preemptions = preemptions
        self._ledger = ledger
        self._events = events
        self._rules = rules
        self._claims: dict[JobKey, _Claim] = {}
        """Nodes that are becoming empty for each job. Bound: the jobs that waited at the last plan."""
        self._stopping: dict[JobKey, tuple[JobKey, float]] = {}
        """Jobs that Slurm stops, the job for which, and the time until which Slurm may need for that.
        Bound: those that are stopped for jobs which are starting."""

    def withheld(self, observation: Observation) -> ClusterState:
        """Return the state for the policy: nodes that are emptied for a job that waits take no others."""
        state = observation.state
        if not self._claims:
            return state
        waits = {observation.rows[row].key for row in state.pending.tolist()}
        self._claims = {key: claim for key, claim in self._claims.items() if key in waits}
        claimed = {node for claim in self._claims.values() for node in claim.nodes}
        barred = np.array([name in claimed for name in state.nodes.names], dtype=np.bool_)
        return replace(state, nodes=replace(state.nodes, available=state.nodes.available & ~barred))

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
        state, capacity = turn.observation.state, turn.cluster.capacity
        index = {name: node for node, name in enumerate(state.nodes.names)}
        later = capacity.without(one.leaves for one in turn.cluster.leaving)
        for key, claim in list(self._claims.items()):
            del self._claims[key]
            if key not in waits or turn.now_s >= claim.until_s or any(node not in index for node in claim.nodes):
                continue
            row = waits[key]
            need = Need.of(state, row, _ANY_NODE)  # it may be in another of its partitions than the policy sees
            placement = Placement.of({index[node]: gpus for node, gpus in zip(claim.nodes, claim.gpus, strict=True)})
            if capacity.holds(need, placement):
                self._claims[key] = claim
                turn.starts.append(Start(row, placement, claim.why))
            elif later.holds(need, placement):
                self._claims[key] = claim
                turn.making_room[row] = claim.why
            else:
                continue  # a job on these nodes was not stopped
            capacity.take(need, placement)
            later.take(need, placement)

    def _take(self, turn: _Turn, wanted: Wanted) -> None:
        """Stop the jobs that can save; where there are none, let Slurm stop all of them."""
        rows, names, place = turn.observation.rows, turn.observation.state.nodes.names, wanted.room.placement
        job, others = rows[wanted.row], [one.job for one in wanted.room.stops]
        rule = turn.rules.because(job, others)
        # Slurm checks limits before it stops jobs, so none is stopped again for a job that it refuses.
        refusal = self._ledger.refusals.get(job.key)
        refused = refusal is not None and not refusal.is_for_boot
        saving = [] if refused else [other for other in others if self._can_save(turn, other)]
        if begun := self._begin(saving, job, rule):
            why = f"{_jobs(begun)} saved and stopped for it: {rule}"
            until_s = turn.now_s + turn.settings.preemption_within_s + _MARGIN_S
            self._claims[job.key] = _Claim(tuple(names[node] for node in place.nodes), place.gpus, until_s, why)
            turn.making_room[wanted.row] = why
            return
        partitions = turn.cluster.partitions
        frees_s = max(turn.rules.grace_s(other, partitions) for other in others) + turn.rules.kill_s + _MARGIN_S
        turn.starts.append(Start(wanted.row, place, f"{_jobs(others)} stopped by Slurm for it: {rule}", frees_s))
        for other in others:
            self._stopping[other.key] = job.key, turn.now_s + frees_s
            self._events.add("preempt", other.key.job_id, f"Slurm stops it for job {job.key.job_id}: {rule}")

    def _begin(self, saving: Iterable[SlurmJob], job: SlurmJob, rule: str) -> list[SlurmJob]:
        """Request the jobs to save. Returns those that do."""
        begun = []
        for other in saving:
            with suppress(PreemptionRefusedError):
                self._preemptions.begin(other, Cause.SLURM, f"job {job.key.job_id} takes its place: {rule}")
                begun.append(other)
        return begun

    def _can_save(self, turn: _Turn, job: SlurmJob) -> bool:
        """Return whether Headway stops the job itself: it may be preempted, and has not failed to save for another in this run."""
        if turn.rules.stop_mode(job, turn.cluster.partitions) is not StopMode.REQUEUE:
            return False
        if mode_of(turn.settings, job.partition) != "automatic" or not self._preemptions.preemptibility(job).may:
            return False
        return not any(
            row.cause is Cause.SLURM and row.stage is Stage.CALLED_OFF and row.restarts == job.restarts
            for row in self._preemptions.recent(job, 1)
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
