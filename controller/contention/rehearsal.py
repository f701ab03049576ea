"""Requests the policy's decision on a hypothetical move: a move is useless if the job would then wait behind others."""

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

REHEARSE_AGAIN_S = 30.0
"""Time after which a move is rehearsed again, in seconds; at once when the place has changed."""
NOT_YET = "is to be moved, as soon as the policy has chosen a place for it"


class Rehearsing(Protocol):
    """A decider that can decide on a hypothetical state."""

    async def rehearse(self, state: ClusterState) -> Plan | None:
        """Return the plan that it would make on that state; None: no answer."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """The policy's answer on one move."""

    answered_s: float
    nodes: tuple[str, ...]
    why_not: str


class Rehearsals:
    """Invariant: at most one move is rehearsed between two calls of `begin`, so that the policy has time for decisions."""

    def __init__(self) -> None:
        """Start without answers."""
        self._answers: dict[RunKey, _Answer] = {}
        """Newest answer on each move. Bound: the moves that are advised now."""
        self._turn: RunKey | None = None

    def begin(self, advice: Sequence[Advice], now_s: float) -> None:
        """Begin a new round with these moves: first those without an answer, then those with the oldest answers.

        A move that is about to be made is always rehearsed anew.
        """
        nodes = {item.run: item.place.nodes for item in advice}
        self._answers = {run: answer for run, answer in self._answers.items() if answer.nodes == nodes.get(run)}
        for item in advice:
            if item.mode == "automatic" and item.run in self._answers and not self._answers[item.run].why_not:
                del self._answers[item.run]
        new = [item.run for item in advice if item.run not in self._answers]
        old = sorted((answer.answered_s, run) for run, answer in self._answers.items())
        stale = [run for answered_s, run in old if now_s - answered_s >= REHEARSE_AGAIN_S]
        self._turn = next(iter((*new, *stale)), None)

    async def why_not(
        self, decider: Rehearsing, result: CycleResult, advice: Advice, relocations: Relocations, now_s: float
    ) -> str:
        """Return why the policy would not place the job there at once, or only to the harm of other jobs; empty: it would place
        it."""
        if advice.run != self._turn:
            answer = self._answers.get(advice.run)
            return f"job {advice.job.key.job_id} {NOT_YET}" if answer is None else answer.why_not
        plan = await decider.rehearse(relocations.what_if(advice.place))
        why_not = _why_not(plan, result, advice)
        self._answers[advice.run] = _Answer(now_s, advice.place.nodes, why_not)
        return why_not


def _why_not(plan: Plan | None, result: CycleResult, advice: Advice) -> str:
    name = advice.job.key.job_id
    if plan is None:
        return f"job {name} fits on other nodes, but the policy gave no answer on placing it there"
    starts = {start.row for start in plan.starts}
    if advice.place.row not in starts:
        return f"job {name} fits on other nodes, but the policy would let it wait"
    now = () if result.decided is None else result.decided.plan.starts
    if any(start.row not in starts for start in now):
        return f"job {name} would take the place of jobs that are being started"
    return ""
