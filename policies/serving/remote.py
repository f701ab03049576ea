"""A policy server as a `Policy`, for programs without an event loop: a simulator asks it as a controller does, over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

from policies.api import Decision, Policy, PolicySpec, load_policy, parse_policy
from policies.errors import PolicyLoadError, PolicyServerError
from policies.model import ClusterState
from policies.options import number
from policies.serving.client import PolicyClient
from policies.serving.queue_cut import cut_queue

_GRPC = "grpc://"
_FORMS = "give grpc://HOST:PORT or unix:///PATH, if wanted with ?deadline_s=SECONDS&fallback=POLICY"
_PATIENCE_S = 60.0
"""Time limit of a decision without a deadline, seconds: a server that hangs ends the run with an error."""
Result = TypeVar("Result")


class RemotePolicy:
    """Decides as the policy at an address does. It connects at the first call; `close` ends the connection.

    Invariant: without a fallback every decision is the server's, or PolicyServerError is raised. A fallback decides at most once
    about a state.
    """

    def __init__(self, address: str, deadline_s: float = _PATIENCE_S, fallback: Policy | None = None) -> None:
        """`address` is unix:///path or host:port on loopback. `fallback` decides when the server gives no valid answer in time."""
        self._address = address
        self._deadline_s = deadline_s
        self._fallback = fallback
        self._runner = asyncio.Runner()
        self._client: PolicyClient | None = None
        self._spec: PolicySpec | None = None
        self.decisions = 0
        self.fallback_decisions = 0
        """Number of decisions that the fallback made, of all `decisions`."""
        self.first_problem = ""
        """Reason for the first of them."""
        self._by_fallback = False
        """True if the fallback made the last decision."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Make it from grpc://HOST:PORT or unix:///PATH, with ?deadline_s= and &fallback= if wanted. Raises PolicyError."""
        if not text.startswith((_GRPC, "unix:")):
            raise PolicyLoadError(f"{text!r} is not the address of a policy server; {_FORMS}")
        address, _, query = text.removeprefix(_GRPC).partition("?")
        try:
            options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
            deadline_s = _seconds(options.pop("deadline_s", str(_PATIENCE_S)))
        except ValueError as error:
            raise PolicyLoadError(f"{text!r}: {error}; {_FORMS}") from error
        fallback = options.pop("fallback", "")
        if options:
            raise PolicyLoadError(f"{text!r}: unknown option {next(iter(options))!r}; {_FORMS}")
        return cls(address, deadline_s, load_policy(*parse_policy(fallback)) if fallback else None)

    @property
    def spec(self) -> PolicySpec:
        """The properties and needs of the policy, as its server describes them. Raises PolicyError."""
        if self._spec is None:
            spec = self._result(self._connected().describe(max(self._deadline_s, _PATIENCE_S)))
            other = self._fallback.spec if self._fallback is not None else spec
            doing = {
                "stops or resizes jobs": (other.preempts and not spec.preempts) or (other.resizes and not spec.resizes),
                "chooses GPUs of nodes": other.exact_gpus and not spec.exact_gpus,
            }
            for does in (does for does, beyond in doing.items() if beyond):
                raise PolicyLoadError(
                    f"{self._address}: the fallback {other.name} {does}, and policy {spec.name} does not; give another fallback"
                )
            self._spec = spec
        return self._spec

    def decide(self, state: ClusterState) -> Decision:
        """Return the server's decision, or the fallback's. Raises PolicyError without a fallback."""
        self.decisions += 1
        self._by_fallback = False
        try:
            # Before the server has described its policy, the whole queue is sent.
            cut = cut_queue(state, self._spec) if self._spec is not None else None
            sent = state if cut is None else cut.considered
            decision = self._result(self._connected().decide(sent, self._deadline_s))
            return decision if cut is None else cut.restored(decision)
        except PolicyServerError as error:
            instead = self.decide_instead(state, str(error))
            if instead is None:
                when = f"decision {self.decisions}, at {state.time_s:.10g} s"
                raise PolicyServerError(error.fault, error.address, f"{error.detail} ({when})") from error
            return instead

    def decide_instead(self, state: ClusterState, problem: str) -> Decision | None:
        """Return the fallback's decision, and count it; None without a fallback, or if it has made the last decision itself."""
        if self._fallback is None or self._by_fallback:
            return None
        self._by_fallback = True
        self.fallback_decisions += 1
        self.first_problem = self.first_problem or problem
        return self._fallback.decide(state)

    @property
    def has_fallback(self) -> bool:
        """True if a fallback decides when the server gives no valid answer in time."""
        return self._fallback is not None

    def count_anew(self) -> None:
        """Set the counts of decisions to 0."""
        self.decisions = self.fallback_decisions = 0
        self.first_problem = ""

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._runner.run(self._client.close())
        self._runner.close()

    def _result(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Return what that call returns."""
        results: list[Result] = []

        async def keep() -> None:
            results.append(await call)

        # Not the result of the task: when `Runner.run` restores the handler of SIGINT, Python makes a text of the task and its
        # result twice, and for a decision on a long queue that takes longer than reading it.
        self._runner.run(keep())
        return results[0]

    def _connected(self) -> PolicyClient:
        if self._client is None:
            self._client = self._runner.run(_connect(self._address))
        return self._client


async def _connect(address: str) -> PolicyClient:
    return PolicyClient(address)  # a channel belongs to the event loop in which it is made


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"deadline_s is {text!r}; give a number of seconds, more than 0") from None
    return number("deadline_s", value, unit="seconds", positive=True)
