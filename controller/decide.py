"""Who decides: the policy server, else the built-in fallback, else nobody (then Slurm itself places the jobs).

However the policy server fails (killed, hung, slow, answering nonsense), a decision comes within the deadline plus the
few milliseconds that the fallback takes. A server that failed several times in a row is left alone for a moment, so that
a hung one does not cost its deadline in every cycle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from controller.clock import Clock
from controller.errors import PolicyUnavailableError
from controller.plan import Plan, Rejection, make_plan
from policies.api import Decision, Outcome, Policy, PolicySpec
from policies.errors import PolicyError
from policies.model import ClusterState

log = structlog.get_logger(__name__)

_PATIENCE = 3
"""Failures in a row after which the server is left alone for `_REST_S` seconds."""
_REST_S = 5.0
_BUSY_SHARE = 1 / 3
"""A server that took more of its deadline than this has no time for rehearsals: a decision would have to wait for them."""
_BUSY_FOR_S = 60.0
"""So long that counts: where nobody waits, no decision shows that it is faster again."""


class PolicyEndpoint(Protocol):
    """A policy server as the controller uses it. Errors are PolicyError."""

    address: str

    async def describe(self, deadline_s: float) -> PolicySpec:
        """What the policy does and needs."""

    async def healthy(self, deadline_s: float) -> bool:
        """Whether it says that it serves."""

    async def decide(self, state: ClusterState, deadline_s: float) -> Decision:
        """The allocation that it wants."""

    async def learn(self, outcomes: Iterable[Outcome]) -> int:
        """Tell it how jobs ended; how many it read."""

    async def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and who made the decision behind it."""

    plan: Plan
    policy: str
    """The policy's name, or fallback:NAME."""
    latency_s: float
    problem: str
    """Why the fallback decided in the policy's place; empty when it did not."""


@dataclass(slots=True)
class DeciderCounts:
    """Since the start."""

    decisions: int = 0
    rejects: int = 0
    fallbacks: int = 0
    undecided: int = 0


class Decider:
    """Asks the policy server, checks its answer, and falls back. Invariant: `decide` returns within the deadline, or soon after."""

    def __init__(self, endpoint: PolicyEndpoint, fallback: Policy, deadline_s: float, clock: Clock) -> None:
        self._endpoint = endpoint
        self._fallback = fallback
        self.deadline_s = deadline_s
        self._clock = clock
        self._spec: PolicySpec | None = None
        self._failures = 0
        self._rest_until_s = 0.0
        self._busy_since_s = -math.inf
        """When the server was last found to be slow."""
        self.counts = DeciderCounts()
        self.last_error = ""

    async def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the policy how jobs ended. Nothing waits for it, and nothing is lost when it fails: the journal has them."""
        try:
            await self._endpoint.learn(outcomes)
        except PolicyError as error:
            log.info("policy_did_not_learn", problem=str(error))

    @property
    def spec(self) -> PolicySpec | None:
        """What the policy server said of itself; None before it has said anything."""
        return self._spec

    @property
    def address(self) -> str:
        """Where the policy server is."""
        return self._endpoint.address

    @property
    def fallback_name(self) -> str:
        """Name of the built-in fallback."""
        return self._fallback.spec.name

    @property
    def serving(self) -> bool:
        """Whether the policy server made the last decision that it was asked for."""
        return self._spec is not None and self._failures == 0

    async def greet(self) -> None:
        """Learn who the policy server is before the first decision; one that is away is asked again then."""
        try:
            self._spec = await self._endpoint.describe(self.deadline_s)
        except PolicyError as error:
            log.warning("policy_away", problem=str(error))

    async def decide(self, state: ClusterState) -> Decided | None:
        """A checked plan; None when neither policy nor fallback gave one."""
        begun_s = self._clock.now()
        self.counts.decisions += 1
        try:
            plan, name = await self._ask_server(state)
        except PolicyUnavailableError as error:
            problem = str(error)
        else:
            self._failures = 0
            return Decided(plan, name, self._took_s(begun_s), "")
        self.counts.fallbacks += 1
        self.last_error = problem
        decided = self._ask_fallback(state)
        if isinstance(decided, Rejection):
            self.counts.undecided += 1
            self.last_error = f"{problem}; fallback: {decided.reason}"
            log.error("no_decision", policy=problem, fallback=decided.reason)
            return None
        return Decided(decided, f"fallback:{self.fallback_name}", self._clock.now() - begun_s, problem)

    async def rehearse(self, state: ClusterState) -> Plan | None:
        """What whoever decides now would decide on a state that is not; None: no answer. Nothing is counted."""
        if self._spec is None or self._failures:
            plan = self._ask_fallback(state)
        elif 0 <= self._clock.now() - self._busy_since_s < _BUSY_FOR_S:
            log.info("not_rehearsed", problem=f"{self._endpoint.address} has been slow of late")
            return None
        else:
            begun_s = self._clock.now()
            try:
                plan = make_plan(state, await self._endpoint.decide(state, self.deadline_s), self._spec)
            except PolicyError as error:
                log.info("not_rehearsed", problem=str(error))
                return None
            finally:
                self._took_s(begun_s)
        return None if isinstance(plan, Rejection) else plan

    async def use(self, endpoint: PolicyEndpoint, state: ClusterState | None) -> PolicySpec:
        """Swap the policy server. Describe, health and a dry-run decision come first; on any failure the old one stays.

        Takes up to three deadlines; decisions go on meanwhile. Raises PolicyUnavailableError with the reason.
        """
        try:
            spec = await endpoint.describe(self.deadline_s)
            if not await endpoint.healthy(self.deadline_s):
                raise PolicyUnavailableError(f"{endpoint.address}: answers, but says that it does not serve")
            if state is not None:
                checked = make_plan(state, await endpoint.decide(state, self.deadline_s), spec)
                if isinstance(checked, Rejection):
                    raise PolicyUnavailableError(f"{endpoint.address}: bad dry-run decision: {checked.reason}")
        except PolicyError as error:
            await endpoint.close()
            raise PolicyUnavailableError(str(error)) from error
        except PolicyUnavailableError:
            await endpoint.close()
            raise
        old, self._endpoint, self._spec = self._endpoint, endpoint, spec
        self._failures, self._rest_until_s, self.last_error = 0, 0.0, ""
        await old.close()
        return spec

    async def close(self) -> None:
        """Let go of the policy server."""
        await self._endpoint.close()

    def _took_s(self, begun_s: float) -> float:
        """How long the server took, which says whether it has time for rehearsals."""
        now_s = self._clock.now()
        slow = now_s - begun_s >= self.deadline_s * _BUSY_SHARE
        self._busy_since_s = now_s if slow else -math.inf
        return now_s - begun_s

    async def _ask_server(self, state: ClusterState) -> tuple[Plan, str]:
        now_s = self._clock.now()
        # A rest longer than any is from before the clock was set back.
        if now_s < self._rest_until_s <= now_s + _REST_S:
            raise PolicyUnavailableError(f"{self.last_error} (next try in {self._rest_until_s - now_s:.0f} s)")
        try:
            if self._spec is None or self._failures:
                # A server that was away may have come back as another policy.
                self._spec = await self._endpoint.describe(self.deadline_s)
            decision = await self._endpoint.decide(state, self.deadline_s)
        except PolicyError as error:
            raise self._failed(str(error)) from error
        checked = make_plan(state, decision, self._spec)
        if isinstance(checked, Rejection):
            self.counts.rejects += 1
            raise self._failed(f"{self._endpoint.address}: decision refused: {checked.reason}")
        return checked, self._spec.name

    def _failed(self, problem: str) -> PolicyUnavailableError:
        self._failures += 1
        if self._failures % _PATIENCE == 0:
            self._rest_until_s = self._clock.now() + _REST_S
        if self._failures == 1:
            log.warning("policy_failed", problem=problem)
        return PolicyUnavailableError(problem)

    def _ask_fallback(self, state: ClusterState) -> Plan | Rejection:
        try:
            decision = self._fallback.decide(state)
        except Exception as error:
            log.exception("fallback_failed")
            return Rejection(f"{self.fallback_name} raised {type(error).__name__}: {error}")
        return make_plan(state, decision, self._fallback.spec)
