"""Asks the policy what it would do with a job that is to move: a move is useless if the job then waits behind others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from controller.contention.relocation import Relocations
from controller.contention.threshold import Advice
from controller.cycle.decision.plan import Plan
from controller.cycle.view.result import CycleResult
from controller.profiles.windows import RunKey
from policies.model import ClusterState

ASK_AGAIN_S = 30.0
"""Time after which the policy is asked about a move again, in seconds; at once when the place has changed."""
NOT_YET = "is to be moved, as soon as the policy has chosen a place for it"


class Rehearsing(Protocol):
    """A decider that can decide on a hypothetical state."""

    async def rehearse(self, state: ClusterState) -> Plan | None:
        """Return what it would decide on that state; None: no answer."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The policy's answer on one move."""

    asked_s: float
    nodes: tuple[str, ...]
    why_not: str


class Rehearsals:
    """Invariant: at most one move is rehearsed between two calls of `begin`, so that the policy has time for decisions."""

    def __init__(self) -> None:
        """Start without answers."""
        self._said: dict[RunKey, _Answer] = {}
        self._turn: RunKey | None = None

    def begin(self, advice: Sequence[Advice], now_s: float) -> None:
        """Begin a new round with these moves: first those without an answer, then those with the oldest answers.

        A move that is about to be made is always rehearsed anew.
        """
        nodes = {item.run: item.place.nodes for item in advice}
        self._said = {run: said for run, said in self._said.items() if said.nodes == nodes.get(run)}
        for item in advice:
            if item.mode == "automatic" and item.run in self._said and not self._said[item.run].why_not:
                del self._said[item.run]
        new = [item.run for item in advice if item.run not in self._said]
        old = sorted((said.asked_s, run) for run, said in self._said.items())
        stale = [run for asked_s, run in old if now_s - asked_s >= ASK_AGAIN_S]
        self._turn = next(iter((*new, *stale)), None)

    async def why_not(
        self, decider: Rehearsing, result: CycleResult, advice: Advice, relocations: Relocations, now_s: float
    ) -> str:
        """Return why the policy would not place the job there at once, or would harm others by it; empty: it would place it."""
        if advice.run != self._turn:
            said = self._said.get(advice.run)
            return f"job {advice.job.key.job_id} {NOT_YET}" if said is None else said.why_not
        plan = await decider.rehearse(relocations.what_if(advice.place))
        why_not = _why_not(plan, result, advice)
        self._said[advice.run] = _Answer(now_s, advice.place.nodes, why_not)
        return why_not


def _why_not(plan: Plan | None, result: CycleResult, advice: Advice) -> str:
    name = advice.job.key.job_id
    if plan is None:
        return f"job {name} has room elsewhere, but the policy does not say whether it would place it there"
    starts = {start.row for start in plan.starts}
    if advice.place.row not in starts:
        return f"job {name} has room elsewhere, but by the policy it would have to wait"
    now = () if result.decided is None else result.decided.plan.starts
    if any(start.row not in starts for start in now):
        return f"job {name} would go before jobs that are being started"
    return ""
