"""Policy servers of a story, in this process: they decide, are away, take too long, or send invalid answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from policies.api import Decision, Policy, PolicySpec, load_policy
from policies.errors import PolicyFault, PolicyServerError
from policies.model import Placement


def make_policy(name: str) -> Policy:
    """Make the policy of that name, without its options."""
    return _class_of(name)()


@cache
def _class_of(name: str) -> Callable[[], Policy]:
    """Return the class of a policy. To look through all installed packages takes 10 ms, and a story needs many policies."""
    return type(load_policy(name))


class StoryServer:
    """A policy server. `mood`: well, away, slow, sick, raises, or a kind of invalid answer."""

    def __init__(self, name: str, answer_s: float = 0.002) -> None:
        """`answer_s`: time that it takes for an answer."""
        self.answer_s = answer_s
        self.address = f"story:{name}"
        self.mood = "well"
        self.process = 1
        self.asked = 0
        """Calls that have come."""
        self.stopped = False
        self.calls: dict[asyncio.Future[None], None] = {}
        """Calls under way, in their order."""
        self.policy: Policy = make_policy(name)

    def stop(self) -> None:
        """Stop it (SIGSTOP): it answers no call until `cont`."""
        self.stopped = True

    def cont(self) -> None:
        """Continue it (SIGCONT): it answers the calls that still wait."""
        if self.stopped:
            self.stopped = False
            for call in [call for call in self.calls if not call.done()]:
                call.set_result(None)

    def end(self) -> None:
        """End it: calls under way fail at once, and later ones find no server until `recover`."""
        self.stopped, self.mood = False, "away"
        for call in [call for call in self.calls if not call.done()]:
            call.set_exception(PolicyServerError(PolicyFault.UNREACHABLE, self.address, "the connection is closed"))
            call.exception()  # a caller that was killed does not take it, and Python would print that

    def recover(self) -> None:
        """Start it again, without a fault."""
        self.cont()
        self.mood = "well"
        self.process += 1


class StoryEndpoint:
    """A connection to a policy server. Keeps `controller.cycle.decide.PolicyEndpoint`."""

    def __init__(self, server: StoryServer) -> None:
        self.address = server.address
        self._server = server
        self._calls: set[asyncio.Future[None]] = set()

    @property
    def connection(self) -> int:
        """Number that changes with each restart of the server."""
        return self._server.process

    @property
    def connected(self) -> bool:
        """True while the policy server can be reached."""
        return self._server.mood != "away"

    async def describe(self, deadline_s: float) -> PolicySpec:
        """Return the policy's specification: its capabilities and the data that it needs."""
        await self._answer(deadline_s)
        return self._server.policy.spec

    async def healthy(self, deadline_s: float) -> bool:
        """Return whether the policy server reports that it is serving."""
        await asyncio.sleep(0.001)
        if self._server.stopped:
            with suppress(PolicyServerError):
                await self._wait(deadline_s)
        return self._server.mood != "sick" and not self._server.stopped

    async def decide(self, state: object, deadline_s: float) -> Decision:
        """Return the policy's decision, or an invalid one."""
        await self._answer(deadline_s)
        mood = self._server.mood
        if mood == "raises":
            raise PolicyServerError(PolicyFault.FAILED, self.address, "a defect of the policy")
        decision = self._server.policy.decide(state)  # type: ignore[arg-type]
        if mood == "unknown job":
            return Decision({**decision.allocation, 10**6: Placement((0,), (1,))})
        if mood == "unknown node":
            return Decision({row: Placement((10**6,), (1,)) for row in decision.allocation})
        if mood == "too much":
            return Decision({row: Placement((0,), (99,)) for row in decision.allocation})
        return decision

    async def learn(self, outcomes: Iterable[object]) -> int:
        """Read the outcomes, and return their number."""
        await self._answer(1.0)
        return len(list(outcomes))

    async def close(self) -> None:
        """Close the connection: calls under way are cancelled, as grpc.aio does it."""
        for call in list(self._calls):
            call.cancel()

    async def _answer(self, deadline_s: float) -> None:
        self._server.asked += 1
        await self._wait(self._server.answer_s)
        if self._server.stopped:
            await self._wait(deadline_s)
            if self._server.stopped:
                raise PolicyServerError(PolicyFault.DEADLINE, self.address, "no answer in time")
        if self._server.mood == "away":
            raise PolicyServerError(PolicyFault.UNREACHABLE, self.address, "nobody listens")
        if self._server.mood == "slow":
            await self._wait(deadline_s)
            raise PolicyServerError(PolicyFault.DEADLINE, self.address, "no answer in time")

    async def _wait(self, seconds: float) -> None:
        """Wait for the server; cancelled when the connection is closed."""
        loop = asyncio.get_running_loop()
        answered = loop.create_future()
        timer = loop.call_later(seconds, lambda: answered.done() or answered.set_result(None))
        self._calls.add(answered)
        self._server.calls[answered] = None
        try:
            await answered
        finally:
            timer.cancel()
            self._calls.discard(answered)
            self._server.calls.pop(answered, None)
