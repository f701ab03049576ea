"""Faults of the watchdog, the policy server and the agents.

Each is stopped (SIGSTOP) and continued, or ends and is started again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.campaign.plot.story import Step
from tests.campaign.world.cluster import Cluster
from tests.campaign.world.policy import StoryServer


def stop_watchdog(cluster: Cluster, seconds: float, awaits: int = 0) -> bool:
    """Send SIGSTOP to the watchdog, at once or at its await of that number from now on, and SIGCONT after a while."""
    process, loop = cluster.watchdog, asyncio.get_running_loop()

    def continue_later() -> None:
        loop.call_later(seconds, process.cont)

    def stopped() -> None:
        cluster.took_effect("stop_watchdog")
        continue_later()

    if awaits:
        process.stop_after(awaits, stopped)
        return False
    process.stop()
    continue_later()
    return process.alive


def end_watchdog(cluster: Cluster, back_in_s: float) -> bool:
    """Kill the watchdog, whatever it does; another one starts after a while."""
    was_there = cluster.watchdog.alive
    cluster.watchdog.kill()
    asyncio.get_running_loop().call_later(back_in_s, cluster.start_watchdog)
    return was_there


def stop_policy(cluster: Cluster, seconds: float) -> bool:
    """Send SIGSTOP to the policy server, and SIGCONT after a while: calls that still wait then are answered."""
    server = cluster.servers[cluster.current_policy]
    server.stop()
    _later(cluster, "stop_policy", server, seconds, server.cont)
    return False


def policy_fails(cluster: Cluster, mood: str, seconds: float) -> bool:
    """Make the policy server absent, slow or unhealthy for a while, or let it send invalid answers."""
    server = cluster.servers[cluster.current_policy]
    server.mood = mood
    _later(cluster, "policy_fails", server, seconds, server.recover)
    return False


def _later(cluster: Cluster, fault: str, server: StoryServer, seconds: float, end: Callable[[], None]) -> None:
    """Call `end` after a while. The fault has taken effect if the server was asked meanwhile."""
    before = server.asked

    def now() -> None:
        cluster.took_effect(fault, times=int(server.asked > before))
        end()

    asyncio.get_running_loop().call_later(seconds, now)


def end_policy(cluster: Cluster, back_in_s: float) -> bool:
    """Kill the policy server, whatever it does; another one starts after a while."""
    server = cluster.servers[cluster.current_policy]
    server.end()
    asyncio.get_running_loop().call_later(back_in_s, server.recover)
    return True


def stop_agent(cluster: Cluster, node: str, seconds: float) -> bool:
    """Send SIGSTOP to the agent of a node, and SIGCONT after a while: what was sent to it meanwhile reaches it then."""
    was_there = cluster.fleet.is_there(node)
    cluster.fleet.stop(node)
    asyncio.get_running_loop().call_later(seconds, cluster.fleet.cont, node)
    return was_there


def _seconds(chance: random.Random, most: float) -> float:
    return round(chance.uniform(0.2, most), 2)


ARGUMENTS: dict[str, Callable[[int, random.Random], dict[str, Any]]] = {
    "stop_watchdog": lambda _, c: {"seconds": _seconds(c, 60), "awaits": c.choice((0, 1, 2, 5, 10))},
    "end_watchdog": lambda _, c: {"back_in_s": _seconds(c, 40)},
    "stop_policy": lambda _, c: {"seconds": c.choice((_seconds(c, 2), _seconds(c, 40)))},
    "end_policy": lambda _, c: {"back_in_s": _seconds(c, 20)},
    "stop_agent": lambda nodes, c: {
        "node": f"n{c.randint(1, nodes)}",
        "seconds": c.choice((_seconds(c, 15), _seconds(c, 15), _seconds(c, 120))),
    },
}
"""Verb → arguments for a cluster of so many nodes."""


def with_other_processes(chance: random.Random, nodes: int, steps: list[Step]) -> list[Step]:
    """Return the steps with one to three faults more. The stop of an agent follows a preemption, where there is one."""
    steps = list(steps)
    for _ in range(chance.randint(1, 3)):
        verb = chance.choice((*sorted(ARGUMENTS), "stop_agent"))
        preempted = [at for at, step in enumerate(steps, 1) if step.verb == "preempt"]
        at = chance.choice(preempted) if verb == "stop_agent" and preempted else chance.randint(4, len(steps))
        steps.insert(at, Step(0.0, verb, ARGUMENTS[verb](nodes, chance)))
    return steps
