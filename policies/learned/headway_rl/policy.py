"""headway-rl as a policy: it runs the set of jobs with the largest sum of learned values times predicted speeds.

No job waits for ever:
- a job that would neither be slowed down nor slow another down is never deferred, so one starts whenever nothing runs;
- the job that is late and was submitted first comes before all others, is not deferred, and nodes are reserved for it; a job that
  runs and has waited for `patience_s` is not stopped. `policies.ordering.patience` says when a job is late, and how long a job
  can wait.

Jobs that have just been started are not stopped or moved for `settle_s`. Where more than MOST_RUNNING jobs run, all keep their
placements, and only the first MOST_WAITING waiting jobs are considered: with so many jobs, no free GPUs are left for which a stop
would pay.
"""

from __future__ import annotations

import numpy as np

from policies.api import Decision, PolicySpec
from policies.documents import is_number
from policies.learned.headway_rl.features import ENCODER, features
from policies.learned.headway_rl.initial_rule import initial_rule
from policies.learned.headway_rl.network import ValueFunction, empty
from policies.learned.headway_rl.search import Assignment, Search
from policies.learned.shadow.guard import Unlimited, shadow_guard_of
from policies.learned.shadow.guarded import Guarded
from policies.learned.weights import weights
from policies.learned.weights.trained_range import TrainedRange
from policies.model import BoolColumn, ClusterState, IntColumn, Placement
from policies.options import choice, number, switch, whole
from policies.ordering.patience import RESERVED, STRETCH, WEEK_S, Patience, head_of, reserve
from policies.placement.best_fit import Capacity
from policies.placement.placement_text import nodes_text
from policies.selection import present_placements
from policies.speeds.contention_model import ContentionModel, Effect, Law
from policies.speeds.effect_text import effect_text, typical_text

SYSTEM = "headway-rl"
LEARNED, WIDE, START = "learned", "wide", "start"
_SHIPPED = {LEARNED: SYSTEM, WIDE: f"{SYSTEM}-wide"}
"""Value of the option `values` -> name of weights that come with Headway."""
MOST_RUNNING = 96
MOST_WAITING = 320
MOST_TAIL = 4.0
"""Largest exponent of a job's age; from about 4 on, jobs run in the order of their age."""
EFFORT = 600
"""Most jobs that a decision considers, summed over the orders that it tries."""
STOPPED = "stopped: waiting jobs have a higher expected gain on its GPUs; it starts again later"
BEHIND = "waits: the free GPUs are reserved for jobs with a higher expected gain"


class HeadwayRl(Guarded):
    """Starts the jobs with the highest learned values under contention; it may stop or move running jobs."""

    def __init__(
        self,
        weights: str | ValueFunction = "",
        preempt: bool = True,
        patience_s: float = WEEK_S,
        settle_s: float = 60.0,
        effort: int = EFFORT,
        law: str = "auto",
        stretch: float = STRETCH,
        values: str = LEARNED,
        tail: float = 0.0,
        guard: bool = False,
    ) -> None:
        """`weights` is the folder of a policy training; without one, the weights come from Headway. `effort` is the number of
        jobs that a decision considers, summed over all orders; 0: only the first order is tried. `law` is as for
        contention-greedy. Of the weights that come with Headway, `values=wide` chooses those of the preset `wide`. With
        `values=start`, jobs have the values of the rule that training began with, and the search its terms; `weights` has no
        effect then. A job is late when it has waited for `patience_s` and for `stretch` times its estimated
        duration. `tail` favours old jobs: values are multiplied by (1 + time since submission / mean duration)^`tail`, so that the
        longest JCTs and the makespan become shorter, and the average longer. With `guard=true` a rule decides where
        jobs stay for longer than under `fifo-skip` without contention, which this policy is made for; so it is off by default, and
        with a value function in place of a folder. Raises WeightsError."""
        is_alone = not switch("guard", guard) or isinstance(weights, ValueFunction)
        self._guard = shadow_guard_of(None if is_alone else Unlimited())
        self._trained: TrainedRange = {}
        """Bound: the columns of the training's states."""
        if choice("values", values, (LEARNED, WIDE, START)) == START:
            weights = initial_rule()
        if isinstance(weights, ValueFunction):
            self._network = weights
        else:
            self._network, self._trained = load_with_range(weights, _SHIPPED[values])
        self._network = self._network.with_tail(_exponent(tail))
        self._preempts = switch("preempt", preempt)
        self._effort = whole("effort", effort, least=0)
        self._law = Law(choice("law", law, tuple(each.value for each in Law)))
        self._patience = Patience(patience_s, stretch)
        self._settle_s = number("settle_s", settle_s, unit="seconds")
        self.spec = PolicySpec(
            name=SYSTEM,
            source="Headway; learned values of jobs, and a search for the set with the highest total value",
            preempts=preempt,
            needs=frozenset({"duration_estimate", "profile"}),
        )

    def decide(self, state: ClusterState) -> Decision:
        """Return the best assignment that is found; jobs that may not be stopped keep their placements."""
        return self._guarded(state, self._decided(state), self._trained)

    def _decided(self, state: ClusterState) -> Decision:
        if not len(state.pending):
            return Decision(present_placements(state, state.running))
        late = self._patience.late(state)
        head = head_of(state, late)
        movable, capacity = self._movable(state, late, head)
        fixed = state.running[~np.isin(state.running, movable)]
        job_values: list[float] = [0.0] * len(state.jobs)
        model = ContentionModel(state, self._law, job_values, fixed)
        # The features depend on the model, and the model's effects on the values: they are filled in here.
        job_values[:] = self._network.values(features(state, model)).tolist()
        own = present_placements(state, movable)
        search = Search(capacity, model, own, job_values, self._network.terms)
        first = [] if head is None else [head]
        queue = search.order([row for row in state.pending.tolist() if row != head])
        assignment = search.best(first, [*own, *queue[:MOST_WAITING]], self._effort)
        allocation = present_placements(state, fixed) | assignment.placed
        return Decision(allocation, _Reasons(state, model, assignment).of(own, first, queue), (*first, *queue))

    def _movable(self, state: ClusterState, late: BoolColumn, head: int | None) -> tuple[IntColumn, Capacity]:
        """Return the running jobs that may be stopped, none of which is late, and the capacity that all others leave.

        Where the head cannot start even if all of them stop, its nodes are reserved: they take no job, and jobs that run there
        stay.
        """
        jobs, running = state.jobs, state.running
        movable = running[:0]
        if self._preempts and len(running) <= MOST_RUNNING:
            young = state.time_s - jobs.start_time_s[running] < self._settle_s
            movable = running[jobs.preemptible[running] & ~young & ~late[running]]
        while True:
            capacity = Capacity(state, staying=running[~np.isin(running, movable)])
            own = present_placements(state, movable)
            # Where more is in use than there is, a running job could not go back to its placement, so it stays there.
            back = np.array(
                [capacity.can_place_again(row, placement) for row, placement in own.items()], dtype=np.bool_
            )
            if back.all():
                break
            movable = movable[back]
        staying = running[~np.isin(running, movable)]
        nodes = () if head is None else reserve(state, capacity, head, staying).nodes
        if nodes:
            stays = [row for row, placement in own.items() if not set(nodes).isdisjoint(placement.nodes)]
            movable = movable[~np.isin(movable, stays)]
            capacity = Capacity(state, staying=running[~np.isin(running, movable)])
            capacity.seal(nodes)
        return movable, capacity


def _exponent(tail: object) -> float:
    """Return the option `tail`. Raises ValueError that names it."""
    if not is_number(tail, low=0.0, high=MOST_TAIL):
        raise ValueError(f"tail is {tail!r}; give a number from 0 to {MOST_TAIL:g}, the exponent of a job's age")
    return float(tail)


class _Reasons:
    """Reasons of a decision, in words."""

    def __init__(self, state: ClusterState, model: ContentionModel, assignment: Assignment) -> None:
        self._state = state
        self._model = model
        self._assignment = assignment

    def of(self, own: dict[int, Placement], first: list[int], queue: list[int]) -> dict[int, str]:
        """Return a reason for every job that waits, starts, moves or stops."""
        placed, deferred = self._assignment.placed, self._assignment.deferred
        reasons = {row: STOPPED for row in own if row not in placed}
        for row in queue:
            if row in deferred:
                reasons[row] = f"deferred: at best {self._effect(row, deferred[row])}"
            elif row not in placed:
                reasons[row] = BEHIND
        reasons |= {row: RESERVED for row in first if row not in placed}
        for row, effect in self._assignment.effects.items():
            verb = "moves to" if row in own else "starts on"
            reasons[row] = f"{verb} {nodes_text(self._state, placed[row])}: {self._effect(row, effect)}"
        return reasons

    def _effect(self, row: int, effect: Effect) -> str:
        return effect_text(self._state, effect, " (weighted by value)") + typical_text(self._model, row)


def load(folder: str = "") -> ValueFunction:
    """Load a network from the folder of a policy training, or from the weights that come with Headway. Raises WeightsError."""
    return load_with_range(folder)[0]


def load_with_range(folder: str, shipped: str = SYSTEM) -> tuple[ValueFunction, TrainedRange]:
    """Load a network as `load` does, and the range of its training from the card. An empty folder means the weights of the name
    `shipped`. Raises WeightsError."""
    place, name = weights.located(folder, SYSTEM, shipped)
    arrays, card = weights.load(place, name, system=SYSTEM, encoder=ENCODER, network=empty())
    return ValueFunction(arrays), card.trained_range
