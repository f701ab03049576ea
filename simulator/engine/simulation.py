"""One run of a policy on a trace: the event loop, and the decisions at each of its instants.

The same `Policy` objects that are served over gRPC decide here. A policy that is defined by a rule (`policies.rule`) is run by the
kernel, which makes the same decisions faster; any other policy gets a `ClusterState` and decides.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from policies.api import Decision, Forkable, Policy, WithFallback
from policies.model import BoolColumn, ClusterState, EstimateSource, IntColumn
from policies.rule import Discipline, Layout, Order, Rule, rule_of
from simulator.cluster.cluster import Cluster
from simulator.engine.apply_decision import Allocator
from simulator.engine.gpu_tracker import GpuTracker
from simulator.engine.job_sizes import JobSizes
from simulator.engine.node_changes import NodeChangeSchedule
from simulator.engine.running_speeds import RunningSpeeds
from simulator.engine.settings import Settings
from simulator.engine.stall_watch import StallWatch
from simulator.engine.stop_costs import StopCosts
from simulator.engine.view.duration_estimates import History, known_at_submission
from simulator.engine.view.state_view import StateView
from simulator.errors import DecisionError, SettingError, TraceError
from simulator.kernel.constants import BY_ARRIVAL, INTERRUPT, NEVER
from simulator.kernel.fill import Backfill, fill
from simulator.kernel.job import ActiveJob
from simulator.kernel.log import FinishLog, SeriesLog, SpanLog
from simulator.kernel.loop import Loop
from simulator.kernel.nodes import NodePool
from simulator.kernel.select import Selection
from simulator.slowdown.api import SlowdownModel
from simulator.slowdown.profiles.model_profiles import ModelProfiles
from simulator.traces.trace import MAX_TIME_S, NS_PER_S, Trace

EMPTY_RULE = Rule(Order.ARRIVAL, Discipline.SKIP)


class Simulation:
    """A run, instant by instant. Deterministic: equal arguments give equal results to the last digit.

    Invariant between `advance` and `decide`: every event at `now` has been handled, and no decision about it has been made.
    Without a policy the caller decides:

        while simulation.advance():
            simulation.apply(choose(simulation.state()))
    """

    def __init__(
        self,
        trace: Trace,
        cluster: Cluster,
        policy: Policy | None,
        settings: Settings | None = None,
        slowdown: list[SlowdownModel] | None = None,
        profiles: ModelProfiles | None = None,
    ) -> None:
        """Begin before the first event: the first `advance` goes to the first arrival. Policies see `profiles`, if any.

        Raises TraceError for a job that can never fit on the cluster, SettingError for settings that contradict each other.
        """
        self.trace = trace
        self.cluster = cluster
        self.settings = settings = settings or Settings()
        self._policy = policy
        self._rule: Rule | None = _rule_of(policy)
        self._period = _period(policy)
        layout = self._rule.layout if self._rule is not None else Layout.ANYWHERE
        pool = NodePool(list(cluster.gpus))
        self._sizes = JobSizes(trace, cluster)
        _refuse_impossible(trace, cluster, self._sizes.possible(layout))
        self._jobs = _JobMaker(trace, settings, self._sizes.of)
        self._sizes.divide(pool)
        names = policy is not None and policy.spec.exact_gpus
        needs = any(model.needs_gpus for model in slowdown or ())
        self._gpus = GpuTracker(cluster.gpus) if names or needs else None
        self._speeds = RunningSpeeds(trace, slowdown or [], self._gpus) if slowdown or self._gpus is not None else None
        self._loop = self._make_loop(pool)
        empty = tuple(model.fork() for model in slowdown or ())
        self._view = cache(partial(StateView, trace, cluster, self._jobs.source, profiles, empty))
        self._allocator = Allocator(trace, policy.spec if policy is not None else None)
        self._node_changes = NodeChangeSchedule(settings.changes, cluster)
        self._loop.interrupt = self._node_changes.next_ns
        self._kernel = _kernel_decider(self._rule, pool)
        self._stall = self._make_stall()
        self._active: list[ActiveJob] | None = None
        self._undecided = False
        self.decisions = 0
        """Number of decisions since the run began, those of a copy's original included."""
        self.guarded = self.outside = self.guarded_inside = 0
        """Number of these decisions that a rule made in a learned policy's place; of those on states outside of the range of its
        training; of the first that are not among the second."""
        self.decision_ns: list[int] = []
        """Duration of each decision that was made in this run, or this copy of one, ns of real time."""

    def _make_loop(self, pool: NodePool) -> Loop:
        settings, rule = self.settings, self._rule
        order = int(rule.order) if rule is not None else BY_ARRIVAL
        threshold = round(rule.threshold_gpu_s * NS_PER_S) if rule is not None else 0
        loop = Loop(pool, self._jobs.arrive, _integers(self.trace.submit_ns), order, threshold)
        self._jobs.finished = loop.finished
        if settings.checkpoint_interval_s != float("inf"):
            loop.checkpoint_period = round(settings.checkpoint_interval_s * NS_PER_S)
        if self._speeds is not None:
            loop.track = self._speeds.track
        if settings.record:
            loop.series, loop.spans = SeriesLog(), SpanLog()
        return loop

    # Time

    @property
    def now_s(self) -> float:
        """The present instant, in seconds of the trace's clock."""
        return self._loop.now / NS_PER_S

    @property
    def finished(self) -> FinishLog:
        """The jobs that have finished since this run, or this copy of one, began."""
        return self._loop.finished

    @property
    def loop(self) -> Loop:
        """The event loop itself, for reports and for planners; to be read, not changed."""
        return self._loop

    @property
    def sharers(self) -> set[int] | None:
        """Rows of the jobs that have shared a link with another job so far; None without a model of shared links."""
        return None if self._speeds is None else self._speeds.sharers

    @property
    def unfinished(self) -> list[str]:
        """Jobs that have arrived and not finished. At the end of a run, they do not fit on the remaining nodes."""
        return [self.trace.job_ids[job.index] for job in self._view().active(self._loop)]

    def advance(self) -> bool:
        """Go to the next instant with an event; return False if there is none, even if jobs wait.

        If no decision was made at the present instant, jobs stay as they are. Raises SettingError if rounds would never end
        and no job does any work.
        """
        if self._undecided:
            self.settle()
        self._active = None
        happened = self._loop.next_instant()
        if happened & INTERRUPT:
            self._node_changes.apply(self._loop)
            self._sizes.divide(self._loop.pool)
            self._loop.interrupt = self._node_changes.next_ns
        if self._period and not self._stall.goes_on(self._loop, happened):
            happened = 0
        self._undecided = happened != 0
        return self._undecided

    def decide(self) -> None:
        """Let the policy decide at this instant, and apply its decision.

        Raises DecisionError, with nothing changed, for a decision that cannot be applied.
        """
        begin = time.perf_counter_ns()
        if self._kernel is not None:
            self._kernel(self._loop)
        elif self._policy is not None:
            self._count(self._ask(self._policy))
        else:
            raise SettingError("this simulation has no policy that could decide; give it one, or apply decisions to it")
        self.decision_ns.append(time.perf_counter_ns() - begin)
        self.settle()

    def _count(self, decision: Decision) -> None:
        self.guarded += bool(decision.guard)
        self.outside += bool(decision.outside)
        self.guarded_inside += bool(decision.guard and not decision.outside)

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until that time, or until the last event. Events at `until_s` itself are not handled."""
        until = NEVER if until_s == float("inf") else round(until_s * NS_PER_S)
        if self._undecided:
            self.decide()
        while self._loop.peek() < until and self.advance():
            self.decide()

    def pause(self, at_ns: int) -> None:
        """Go on until just before that instant: events at it are not handled, and the clock shows it."""
        if self._undecided:
            self.decide()
        while self._loop.peek() < at_ns and self.advance():
            self.decide()
        self._loop.now = max(self._loop.now, at_ns)
        self._active = None

    def end_arrivals(self, rows: int) -> None:
        """Let only the jobs of the first `rows` rows of the trace arrive."""
        loop = self._loop
        loop.num_jobs = min(rows, loop.num_jobs)
        if loop.arrived >= loop.num_jobs:
            loop.next_arrival = NEVER

    # Deciding from outside

    def state(self) -> ClusterState:
        """Return the cluster as a policy sees it now; its rows are those of `jobs`."""
        return self._view().state(self._loop, self.jobs(), self.decisions, self._gpus)

    def jobs(self) -> list[ActiveJob]:
        """Return the jobs of the rows of states and decisions: all active ones, by submission. To be read, not changed."""
        if self._active is None:
            self._active = self._view().active(self._loop)
        for job in self._active:
            job.settle(self._loop.now)
        return self._active

    def apply(self, decision: Decision) -> None:
        """Apply a decision about the present jobs. Raises DecisionError, with nothing changed, if it cannot be applied."""
        self._allocate(decision)
        self.settle()

    def settle(self) -> None:
        """Let starts and stops that the caller made on `loop` itself take effect; without it, `advance` continues at the old
        speeds.

        It is for callers that decide often and need no `ClusterState`. They may do only what `apply` would allow.
        """
        loop = self._loop
        self._undecided = False
        self.decisions += 1
        if self._speeds is not None:
            self._speeds.update(loop)
        self._set_round()
        loop.note()

    def _ask(self, policy: Policy) -> Decision:
        """Apply the policy's decision, or that of its fallback if the policy's cannot be applied; return the applied one."""
        state = self.state()
        decision = policy.decide(state)
        try:
            self._allocate(decision)
        except DecisionError as error:
            instead = policy.decide_instead(state, str(error)) if isinstance(policy, WithFallback) else None
            if instead is None:
                raise
            decision = instead
            self._allocate(decision)
        return decision

    def _allocate(self, decision: Decision) -> None:
        if self._active is None and not (isinstance(decision, Decision) and not decision.allocation):
            raise DecisionError(
                "time has gone on since the state was read; read the state of this instant, then decide"
            )
        try:
            self._allocator.check(decision, self.jobs())
            if self._policy is None and any(placement.gpu_masks for placement in decision.allocation.values()):
                self._follow_gpus()
            if self._gpus is not None:
                self._gpus.update(self._loop)  # so that the GPUs of jobs that have just finished are free
            self._allocator.apply(self._loop, self.jobs(), decision, self._gpus)
        except DecisionError as error:
            which = f"decision {self.decisions + 1} of {self._allocator.name}, at {self.now_s:.10g} s"
            raise DecisionError(f"{which}, cannot be carried out: {error}") from None

    def _set_round(self) -> None:
        loop = self._loop
        if self._rule is not None:
            # A rule needs no round while no job waits; while no job runs, its last decision still holds.
            wanted = loop.num_waiting > 0 and len(loop.running) > 0
        else:
            wanted = loop.num_waiting > 0 or len(loop.running) > 0
        loop.set_round(self._period if wanted else 0)

    # Copies

    def fork(self, policy: Policy | None = None) -> Simulation:
        """Return an independent copy that continues from here, under another policy if one is given.

        It takes time in proportion to the active jobs, and copies a few numbers per node. The log of finished jobs stays with the
        original (`finished.prefix`; a short log is copied), and so do records of runs and `decision_ns`; the copy goes on counting
        decisions. Rows mean the same jobs in both until one of them advances. A new policy first decides at the next instant;
        `decide` lets it decide at once. Without one, a policy that remembers earlier states is forked too.
        """
        twin = copy.copy(self)
        twin._jobs = self._jobs.fork()
        twin._loop = self._loop.fork()
        twin._loop.num_jobs = self._loop.num_jobs
        twin._loop.arrivals = twin._jobs.arrive
        twin._jobs.finished = twin._loop.finished
        twin._node_changes = self._node_changes.fork()
        twin._gpus = self._gpus.fork() if self._gpus is not None else None
        twin._speeds = self._speeds.fork(twin._loop, twin._gpus) if self._speeds is not None else None
        twin._stall = self._stall.fork()
        twin._active = None if self._active is None else twin._view().active(twin._loop)
        twin.decision_ns = []
        if policy is not None:
            twin._change_policy(policy)
        else:
            twin._policy = _fork_of(self._policy)
        twin._kernel = _kernel_decider(twin._rule, twin._loop.pool)
        return twin

    def _change_policy(self, policy: Policy) -> None:
        self._policy = policy
        self._rule = _rule_of(policy)
        self._period = _period(policy)
        self._stall = self._make_stall()
        self._allocator = Allocator(self.trace, policy.spec)
        if policy.spec.exact_gpus:
            self._follow_gpus()
        rule = self._rule or EMPTY_RULE
        self._loop.reorder(int(rule.order), round(rule.threshold_gpu_s * NS_PER_S))
        self._set_round()

    def _follow_gpus(self) -> None:
        """Follow from now on which GPUs jobs have; those that run have the lowest."""
        if self._gpus is None:
            self._gpus = GpuTracker(self.cluster.gpus, self._loop.running)
            if self._speeds is None:
                self._speeds = RunningSpeeds(self.trace, [])
            self._speeds.follow(self._gpus)
            self._loop.track = self._speeds.track

    def _make_stall(self) -> StallWatch:
        return StallWatch(self._policy.spec.name if self._policy is not None else "", self._period)


class _JobMaker:
    """Makes jobs as they arrive."""

    def __init__(self, trace: Trace, settings: Settings, size: IntColumn) -> None:
        self.finished = FinishLog()
        estimate, self.source = known_at_submission(trace, settings.estimates, settings.seed)
        self._history = History(trace) if self.source == EstimateSource.HISTORY else None
        fixed = ~trace.preemptible
        if settings.preemptible_share < 1.0:
            drawn = np.random.default_rng((settings.seed, 0x666978)).random(trace.file_length)[trace.file_rows]
            fixed = fixed | (drawn >= settings.preemptible_share)
        if settings.preempt_cost_s is None:
            cost = StopCosts().column(trace)
        else:
            cost = np.full(len(trace), round(settings.preempt_cost_s * NS_PER_S), dtype=np.int64)
        self._submit = _integers(trace.submit_ns)
        self._gpus = _integers(trace.num_gpus)
        self._size = _integers(size)
        self._work = _integers(trace.duration_ns)
        self._estimate = _integers(estimate)
        self._fixed = _integers(fixed.astype(np.int64))
        self._cost = _integers(cost)

    def arrive(self, row: int) -> ActiveJob:
        """Return the job of that row."""
        estimate = self._estimate[row] if self._history is None else self._history.estimate(row, self.finished)
        return ActiveJob(
            row,
            self._submit[row],
            self._gpus[row],
            self._size[row],
            self._work[row],
            estimate,
            self._fixed[row],
            self._cost[row],
        )

    def fork(self) -> _JobMaker:
        """Return a copy that reads another log."""
        twin = copy.copy(self)
        if self._history is not None:
            twin._history = self._history.fork(self.finished)
        return twin


def _refuse_impossible(trace: Trace, cluster: Cluster, possible: BoolColumn) -> None:
    if possible.all():
        return
    row = int(np.flatnonzero(~possible)[0])
    raise TraceError(
        f"job {trace.job_ids[row]} asks for {trace.num_gpus[row]} GPUs, which the cluster ({cluster.num_gpus} GPUs on "
        f"{cluster.num_nodes} nodes) can never give it",
        mend="take a larger cluster, or leave such jobs out with --drop-impossible",
        path=trace.name,
        column="num_gpus",
    )


def _fork_of(policy: Policy | None) -> Policy | None:
    """Return a copy of a policy that remembers earlier states; any other policy itself."""
    remembers: object = policy
    forked: Policy | None = remembers.fork() if isinstance(remembers, Forkable) else policy
    return forked


def _period(policy: Policy | None) -> int:
    """Return the length of a policy's rounds, ns; 0 if it has none."""
    if policy is None or policy.spec.round_s == 0:
        return 0
    if not 1 / NS_PER_S <= policy.spec.round_s <= MAX_TIME_S:
        raise SettingError(
            f"policy {policy.spec.name} has rounds of {policy.spec.round_s} s; give it 1 ns to 126 years, or 0 for none"
        )
    return round(policy.spec.round_s * NS_PER_S)


def _rule_of(policy: object) -> Rule | None:
    """Return the policy's rule, if it has one. Jobs of a simulation have no priority by Slurm: that order is the one of arrival."""
    rule = rule_of(policy)
    return replace(rule, order=Order.ARRIVAL) if rule is not None and rule.order == Order.SLURM else rule


def _integers(column: IntColumn) -> memoryview[int]:
    """Return the column as Python integers that are made one by one, without a list of them all."""
    return memoryview(np.ascontiguousarray(column).data)


def _kernel_decider(rule: Rule | None, pool: NodePool) -> Callable[[Loop], object] | None:
    """Return the kernel's function that decides by the rule; None if the policy has none."""
    if rule is None:
        return None
    layout = int(rule.layout)
    if rule.discipline == Discipline.SELECT:
        return Selection(pool, layout).decide
    if rule.discipline == Discipline.BACKFILL:
        if rule.order != Order.ARRIVAL:
            raise SettingError("backfilling keeps the order of arrival; this rule has another order")
        return Backfill(layout).decide
    strict = int(rule.discipline == Discipline.STRICT)
    return lambda loop: fill(loop, layout, strict)
