"""A decision of SCHED2: an agent chooses which of ten waiting jobs starts next, or that none does; packing chooses the nodes.

Source: SCHED2 (Luan et al., GLOBECOM 2019), section III. Three points are chosen here. The agent may not wait while nothing runs,
as in the environment. Jobs that it sees and does not start wait, even if GPUs are free: it has learned to defer jobs. And where its
answer is not finite, as for inputs far beyond those of training, the first job that fits starts, and its reason says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from policies.api import Decision
from policies.learned.sched2.encoder import AgentView, Encoder
from policies.learned.shadow.guarded import Guarded
from policies.learned.weights.trained_range import TrainedRange
from policies.model import ClusterState, Placement
from policies.placement.best_fit import free_gpus
from policies.placement.placement_text import nodes_text
from policies.selection import present_placements

NEEDS = frozenset({"duration_estimate", "profile"})
DEFERRED = "deferred: the policy prefers to keep {} GPUs free for now"
_LOST = "first come, first served, because the network's answer is not finite"


@dataclass(frozen=True, slots=True)
class AgentAction:
    """An action that the agent chooses."""

    action: int
    is_lost: bool = False
    """The network's answer was not finite."""


class Sched2Agent(Protocol):
    """Chooses jobs. Invariant: equal views give equal actions."""

    @property
    def trained(self) -> TrainedRange:
        """Range of the training; empty if it is not known."""

    @property
    def encoder(self) -> Encoder:
        """The encoder that turns a cluster state into the agent's observation."""

    def choose(self, view: AgentView) -> AgentAction:
        """Return a possible action."""


class AgentPolicy(Guarded):
    """A policy whose decisions are an agent's; subclasses say which agent, and where it comes from."""

    _agent: Sched2Agent

    def decide(self, state: ClusterState) -> Decision:
        """Keep running jobs; the agent starts jobs one by one until it waits. Raises EncoderError for unsupported clusters."""
        return self._guarded(state, decide(self._agent, state), self._agent.trained)


def decide(agent: Sched2Agent, state: ClusterState) -> Decision:
    """Keep running jobs; the agent starts jobs one by one until it waits. Raises EncoderError for unsupported clusters."""
    allocation = present_placements(state, state.running)
    reasons: dict[int, str] = {}
    waiting = state.pending
    agent.encoder.check(state)
    if not len(waiting) or state.jobs.num_gpus[waiting].min() > free_gpus(state, state.running):
        return Decision(allocation, reasons, tuple(waiting.tolist()))
    view = agent.encoder.observe(state)
    while len(view.candidates):
        chosen = agent.choose(view)
        started = view.start(chosen.action)
        if started is None:
            break
        row, placement = started
        allocation[row] = placement
        reasons[row] = _LOST if chosen.is_lost else _why(state, placement)
    possible = view.mask()[1:]
    if possible.any():
        free = view.capacity.total_free()
        reasons.update(
            (row, DEFERRED.format(free)) for row, fits in zip(view.candidates, possible, strict=False) if fits
        )
    return Decision(allocation, reasons, tuple(waiting.tolist()))


def _why(state: ClusterState, placement: Placement) -> str:
    return f"chosen by the policy: {placement.num_gpus} GPUs on {nodes_text(state, placement)}"
