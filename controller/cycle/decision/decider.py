"""The decision of a cycle: by the policy server, else by the built-in fallback. If both fail, Slurm places the jobs.

However the policy server fails (killed, hung, slow, with answers that make no sense), a decision comes within the deadline plus
the few milliseconds that the fallback takes. A server that has failed several times in a row is not called for some seconds, so
that not every cycle waits for the deadline of a server that hangs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import structlog

from controller.base.clock import Clock
from controller.base.errors import PolicyUnavailableError
from controller.cycle.decision.named_gpus import Binds, always_binds
from controller.cycle.decision.plan import Plan, Rejection, make_plan
from controller.cycle.decision.server import PolicyEndpoint, Server
from controller.state.decided_by import DecidedBy
from policies.api import Outcome, Policy, PolicySpec, ordered_by
from policies.errors import PolicyError, PolicyFault, PolicyServerError
from policies.model import ClusterState
from policies.serving.queue_cut import cut_queue

log = structlog.get_logger(__name__)

_PATIENCE = 3
"""Failures in a row after which the server is not called for `_REST_S` seconds."""
_REST_S = 5.0
_ROW_S = 120.0
"""Longest time between two failures in a row, seconds: longer than the longest pause between two cycles."""
_TRIES = 2
"""Maximum number of calls to a server whose connection changes before its answer arrives."""
_BUSY_SHARE = 1 / 3
"""Share of the deadline above which a server is too slow for rehearsals, because decisions would wait for them."""
_LEARNING_S = 30.0
"""Time after which a policy that learns describes itself again, seconds: its description has the state of its learning."""
_BUSY_FOR_S = 60.0
"""Time for which a server counts as slow, seconds. It is limited, because without waiting jobs no decision shows that the
server is faster again."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan, and the policy that made the decision behind it."""

    plan: Plan
    policy: str
    """The policy's name, or fallback:NAME."""
    latency_s: float
    problem: str
    """Reason why the fallback decided in the policy's place; empty when it did not."""
    ordered_by: str = ""
    """How that policy orders waiting jobs, in words that follow "orders"; empty if it does not state it."""


@dataclass(slots=True)
class DeciderCounts:
    """Counts since the start."""

    decisions: int = 0
    rejects: int = 0
    guarded: int = 0
    """Decisions that a rule made in a learned policy's place."""
    fallbacks: int = 0
    undecided: int = 0
    lost_outcomes: int = 0
    """Ends of jobs that no policy server has received, and none will."""


class Decider:
    """Calls the policy server, checks its answer, and falls back.

    Invariants: `decide` returns within the deadline, or soon after. A decision is checked against the description that the
    process that made it gives of itself. An endpoint is closed when no call is under way on it.
    """

    def __init__(self, endpoint: PolicyEndpoint, fallback: Policy, deadline_s: float, clock: Clock) -> None:
        self._server = Server(endpoint)
        self._calls: Counter[int] = Counter()
        """Number of calls under way, by identity of the endpoint. Bound: the calls under way."""
        self._fallback = fallback
        self._fallback_order = ordered_by(fallback)
        self._deadline_s = deadline_s
        self._clock = clock
        self._away = ""
        """Problem of the last failed attempt to get the server's description."""
        self._failures = 0
        self._failure = ""
        """Problem of the last failure."""
        self._doubtful = False
        """True if the server may serve another policy than it described: it has failed since then."""
        self._rest_until_s = -math.inf
        self._busy_since_s = -math.inf
        """Time at which the server was last found to be slow."""
        self._described_s = -math.inf
        """Time of the last description."""
        self._undecided: tuple[float, float] | None = None
        """Times of the first and the last of consecutive decisions that neither policy nor fallback made."""
        self.counts = DeciderCounts()
        self.last_error = ""
        self.outside = ""
        """How the last state leaves the range of the policy's training; empty if it does not, or if that is not known."""
        self.guard = ""
        """Reason why a rule made the last decision in the policy's place; empty if the policy itself or the fallback made it."""

    def set_deadline(self, deadline_s: float) -> None:
        """Set the time that the policy server has for a decision, seconds."""
        self._deadline_s = deadline_s

    async def learn(self, outcomes: Sequence[Outcome]) -> PolicyFault | None:
        """Report to the policy how jobs ended, beside the decisions. Returns the server's fault; None: it has received them all."""
        try:
            async with self._calling() as server:
                await server.endpoint.learn(outcomes)
        except PolicyError as error:
            log.info("policy_did_not_learn", problem=str(error))
            return error.fault if isinstance(error, PolicyServerError) else PolicyFault.UNREACHABLE
        return None

    def count_lost(self, number: int) -> None:
        """Count outcomes that no policy server has received, and none will."""
        self.counts.lost_outcomes += number

    @property
    def spec(self) -> PolicySpec | None:
        """The policy server's description of itself; None before the first answer, and when another process may have replaced
        it."""
        return self._server.spec if self._server.known else None

    @property
    def address(self) -> str:
        """Address of the policy server."""
        return self._server.endpoint.address

    @property
    def fallback_name(self) -> str:
        """Name of the built-in fallback."""
        return self._fallback.spec.name

    @property
    def serving(self) -> bool:
        """True if the policy server is connected and has made the last decision that was requested from it."""
        return self._server.known and self._server.endpoint.connected and self._failures == 0

    @property
    def undecided_s(self) -> float:
        """Time for which neither policy nor fallback has made a decision, seconds; 0 when one of them made the last one."""
        return 0.0 if self._undecided is None else self._clock.monotonic() - self._undecided[0]

    async def refresh(self) -> None:
        """Get the server's description, unless it is known. A server that does not answer is called again before it decides."""
        if self._server.known and self._server.endpoint.connected and not self.description_is_old:
            return
        if self._rests_s > 0:
            return
        serves = self.description_is_old
        # The next attempt comes as late after one that fails as after one that succeeds: each may take the whole deadline.
        self._described_s = self._clock.monotonic()
        try:
            async with self._calling() as server:
                await self._described(server, self._deadline_s)
        except PolicyError as error:
            if serves:
                log.info("policy_not_described", problem=str(error))
                return
            if self.last_error != str(error):
                log.warning("policy_away", problem=str(error))
            self.last_error = self._away = str(error)
        else:
            if self.last_error == self._away:  # no decision was needed meanwhile
                self.last_error = ""

    @property
    def description_is_old(self) -> bool:
        """True if the policy serves and learns, and has not described the state of its learning for a while."""
        spec = self._server.spec
        learns = self.serving and spec is not None and spec.learning is not None
        return learns and self._clock.monotonic() - self._described_s >= _LEARNING_S

    async def decide(self, state: ClusterState, binds: Binds = always_binds) -> Decided | None:
        """Return a checked plan; None when neither policy nor fallback gave one."""
        begun_s = self._clock.monotonic()
        self.counts.decisions += 1
        try:
            plan, spec = await self._decide_by_server(state, binds)
        except PolicyUnavailableError as error:
            problem = str(error)
        else:
            self.last_error, self._undecided = "", None
            self._note_guard(plan.guard)
            self._note_outside(plan.outside)
            return Decided(plan, spec.name, self._took_s(begun_s), "", spec.ordered_by)
        self.counts.fallbacks += 1
        self.guard = self.outside = ""
        self.last_error = problem
        decided = self._decide_by_fallback(state, binds)
        if isinstance(decided, Rejection):
            self.counts.undecided += 1
            self._note_undecided()
            self.last_error = f"{problem}; fallback: {decided.reason}"
            log.error("no_decision", policy=problem, fallback=decided.reason)
            return None
        self._undecided = None
        by = str(DecidedBy(self.fallback_name, fallback=True))
        return Decided(decided, by, self._clock.monotonic() - begun_s, problem, self._fallback_order)

    async def rehearse(self, state: ClusterState) -> Plan | None:
        """Return the plan that the active policy would make on a hypothetical state; None: no answer. Nothing is counted."""
        if not self._server.known or self._failures:
            plan = self._decide_by_fallback(state)
        elif self._clock.monotonic() - self._busy_since_s < _BUSY_FOR_S:
            log.info("not_rehearsed", problem=f"{self.address} has been slow recently")
            return None
        else:
            begun_s = self._clock.monotonic()
            try:
                async with self._calling() as server:
                    _, plan = await self._answer(server, state, begun_s + self._deadline_s)
            except PolicyError as error:
                log.info("not_rehearsed", problem=str(error))
                return None
            finally:
                self._took_s(begun_s)
        return None if isinstance(plan, Rejection) else plan

    async def use(self, endpoint: PolicyEndpoint, state: ClusterState | None) -> PolicySpec:
        """Swap the policy server. Its description, its health and a dry-run decision come first; on any failure the old one stays.

        Takes up to three deadlines; decisions go on meanwhile. Raises PolicyUnavailableError with the reason.
        """
        fresh = Server(endpoint)
        try:
            fresh = await self._described(fresh, self._deadline_s)
            if not await endpoint.healthy(self._deadline_s):
                raise PolicyUnavailableError(
                    f"{endpoint.address}: answers, but does not report SERVING by gRPC's health service "
                    "(grpc.health.v1.Health, for headway.v1.Policy)"
                )
            if state is not None:
                fresh, checked = await self._answer(fresh, state, self._clock.monotonic() + self._deadline_s)
                if isinstance(checked, Rejection):
                    raise PolicyUnavailableError(
                        f"{endpoint.address}: its dry-run decision was rejected: {checked.reason}"
                    )
        except PolicyError as error:
            await endpoint.close()
            raise PolicyUnavailableError(str(error)) from error
        except BaseException:
            await endpoint.close()
            raise
        old, self._server = self._server.endpoint, fresh
        self._failures, self._rest_until_s, self.last_error, self.guard, self.outside = 0, 0.0, "", "", ""
        self._doubtful = False
        if not self._calls[id(old)]:
            await old.close()
        assert fresh.spec is not None, "it was described above"
        return fresh.spec

    async def close(self) -> None:
        """Close the connection to the policy server. Calls under way fail with a PolicyError."""
        await self._server.endpoint.close()

    @asynccontextmanager
    async def _calling(self) -> AsyncIterator[Server]:
        """Give the server that decides now. Its endpoint stays open within the context, even if it is swapped meanwhile."""
        server = self._server
        key = id(server.endpoint)
        self._calls[key] += 1
        try:
            yield server
        finally:
            self._calls[key] -= 1
            if not self._calls[key]:
                del self._calls[key]
                if server.endpoint is not self._server.endpoint:
                    await server.endpoint.close()

    def _left_s(self, until_s: float, server: Server) -> float:
        """Return the time until then, seconds. Raises PolicyError if there is none."""
        left_s = until_s - self._clock.monotonic()
        if left_s <= 0:
            raise PolicyServerError(
                PolicyFault.DEADLINE, server.endpoint.address, "its earlier answers took all the time"
            )
        return left_s

    async def _described(self, server: Server, deadline_s: float) -> Server:
        """Return the server with its present description of itself, and remember it if it still decides. Raises PolicyError."""
        until_s = self._clock.monotonic() + deadline_s
        for _ in range(_TRIES):
            before = server.endpoint.connection
            spec = await server.endpoint.describe(self._left_s(until_s, server))
            if server.endpoint.connection == before:
                break
        # If the connection changed every time, `before` is an old one: then the spec counts as unknown, and is read again.
        fresh = Server(server.endpoint, spec, before)
        if self._server.endpoint is server.endpoint:
            self._server = fresh
            self._described_s = self._clock.monotonic()
        return fresh

    async def _answer(
        self, server: Server, state: ClusterState, until_s: float, binds: Binds = always_binds
    ) -> tuple[Server, Plan | Rejection]:
        """Return a decision, checked against the description of the process that made it. Raises PolicyError.

        All calls together have the time until `until_s`, on the monotonic clock.
        """
        for _ in range(_TRIES):
            if not server.known:
                server = await self._described(server, self._left_s(until_s, server))
            try:
                plan = await self._planned(server, state, until_s, binds)
                if plan is not None:
                    return server, plan
            except PolicyError:
                raise
            except Exception as error:  # a decision that cannot be checked is this server's failure, not the cycle's
                log.exception("decision_unreadable", address=server.endpoint.address)
                return server, Rejection(f"checking it raised {type(error).__name__}: {error}")
        address = server.endpoint.address
        raise PolicyServerError(PolicyFault.UNREACHABLE, address, "it restarted during each attempt")

    async def _planned(
        self, server: Server, state: ClusterState, until_s: float, binds: Binds
    ) -> Plan | Rejection | None:
        """Return the checked decision of a server, which gets the part of the queue that its policy considers; None if another
        process may have decided than the one that described itself."""
        if server.spec is None:
            return None
        cut = cut_queue(state, server.spec)
        decision = await server.endpoint.decide(cut.considered, self._left_s(until_s, server))
        if not server.known:
            return None
        plan = make_plan(state, cut.restored(decision), server.spec, binds)
        if cut.is_cut and isinstance(plan, Plan):
            return replace(plan, considered=len(cut.considered.pending))
        return plan

    def _note_guard(self, reason: str) -> None:
        if reason and not self.guard:
            log.warning("policy_guarded", address=self.address, reason=reason)
        self.counts.guarded += bool(reason)
        self.guard = reason

    def _note_outside(self, text: str) -> None:
        if text and not self.outside:
            log.warning("policy_outside_trained_range", address=self.address, state=text)
        self.outside = text

    def _note_undecided(self) -> None:
        now_s = self._clock.monotonic()
        # After a long time without waiting jobs no decision was needed, and earlier failures do not count any more.
        goes_on = self._undecided is not None and now_s - self._undecided[1] <= _ROW_S
        first_s = self._undecided[0] if goes_on and self._undecided is not None else now_s
        self._undecided = first_s, now_s

    @property
    def _rests_s(self) -> float:
        """Seconds until the server is called again; 0 or less: it is called."""
        return self._rest_until_s - self._clock.monotonic()

    def _took_s(self, begun_s: float) -> float:
        """Return the time that the server took, seconds, and note whether it has time for rehearsals."""
        now_s = self._clock.monotonic()
        slow = now_s - begun_s >= self._deadline_s * _BUSY_SHARE
        self._busy_since_s = now_s if slow else -math.inf
        return now_s - begun_s

    async def _decide_by_server(self, state: ClusterState, binds: Binds) -> tuple[Plan, PolicySpec]:
        if self._rests_s > 0:
            raise PolicyUnavailableError(f"{self._failure} (next attempt in {self._rests_s:.0f} s)")
        until_s = self._clock.monotonic() + self._deadline_s
        async with self._calling() as current:
            server = current
            described = False
            try:
                if self._doubtful:  # a server that did not answer may serve another policy now
                    server = await self._described(server, self._left_s(until_s, server))
                    described = True
                server, checked = await self._answer(server, state, until_s, binds)
            except PolicyError as error:
                # A description that has just come counts for the next attempt too: otherwise a server would never decide again
                # whose description and decision take longer than the deadline together.
                raise self._failed(server, str(error), doubtful=not described) from error
        if isinstance(checked, Rejection):
            self.counts.rejects += 1
            problem = f"{server.endpoint.address}: decision rejected: {checked.reason}"
            raise self._failed(server, problem, doubtful=True)
        if self._server.endpoint is server.endpoint:
            self._failures, self._doubtful = 0, False
        assert server.spec is not None, "its decision was checked against it"
        return checked, server.spec

    def _failed(self, server: Server, problem: str, *, doubtful: bool) -> PolicyUnavailableError:
        # A server that was swapped meanwhile says nothing about the new one.
        if self._server.endpoint is server.endpoint:
            self._failures += 1
            is_new = self._failures == 1 or problem != self._failure
            self._failure = problem
            self._doubtful = doubtful
            if self._failures % _PATIENCE == 0:
                self._rest_until_s = self._clock.monotonic() + _REST_S
            if is_new:
                log.warning("policy_failed", problem=problem)
        return PolicyUnavailableError(problem)

    def _decide_by_fallback(self, state: ClusterState, binds: Binds = always_binds) -> Plan | Rejection:
        try:
            return make_plan(state, self._fallback.decide(state), self._fallback.spec, binds)
        except Exception as error:
            log.exception("fallback_failed")
            return Rejection(f"{self.fallback_name} raised {type(error).__name__}: {error}")
