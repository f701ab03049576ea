"""A policy serves for months: what it remembers does not grow with the jobs that it has seen."""

from __future__ import annotations

import gc
import types
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from policies.model import ClusterState
from tests.unit.simulator.agents.test_every_policy import POLICIES, WEIGHTS_FOR, loaded, states

_CONTAINERS = (dict, list, set, frozenset, deque)
_LEFT_OUT = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
"""Objects that lead to the whole program."""
DAYS = 16
DAY_S = 86_400.0


class Remembering:
    """A policy that `sizes` must find."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}
        self.newest: deque[str] = deque(maxlen=4)

    def decide(self, state: ClusterState) -> None:
        for name in state.jobs.ids:
            self.seen[name] = [name]
            self.newest.append(name)


def sizes(policy: object) -> dict[str, int]:
    """Return the entries of all containers without a maximum that the policy leads to, by the attribute they are reached from."""
    found: dict[str, int] = {}
    reached: set[int] = set()
    to_do = [(policy, "")]
    while to_do:
        item, owner = to_do.pop()
        if id(item) in reached or isinstance(item, _LEFT_OUT) or type(item).__module__.startswith(("torch", "numpy")):
            continue
        reached.add(id(item))
        if isinstance(item, _CONTAINERS) and getattr(item, "maxlen", None) is None:
            found[owner] = found.get(owner, 0) + len(item)
        to_do += _parts(item, owner)
    return found


def _parts(item: object, owner: str) -> Iterator[tuple[object, str]]:
    kind = type(item)
    if not kind.__module__.startswith(("policies", __name__)):
        for part in gc.get_referents(item):
            yield part, owner
        return
    slots = [name for each in kind.__mro__ for name in getattr(each, "__slots__", ()) if hasattr(item, name)]
    for name in [*getattr(item, "__dict__", {}), *slots]:
        yield getattr(item, name), f"{kind.__name__}.{name}"


def days_of(cluster: str) -> Iterator[ClusterState]:
    """Yield states of which each has the jobs of another day."""
    some = states(cluster)
    for day in range(DAYS):
        for state in some[len(some) // 3 :][:2]:
            ids = tuple(f"{name}-{day}" for name in state.jobs.ids)
            users = tuple(f"{name}-{day}" for name in state.jobs.users)
            yield replace(state, jobs=replace(state.jobs, ids=ids, users=users), time_s=state.time_s + day * DAY_S)


def grown(policy: Any, cluster: str) -> dict[str, tuple[int, int]]:
    """Return the sizes, after a third of the days and in the end, of what has grown by more than chance explains."""
    found = []
    for state in days_of(cluster):
        policy.decide(state)
        found.append(sizes(policy))
    early, late = found[len(found) // 3], found[-1]
    return {name: (early.get(name, 0), size) for name, size in late.items() if size > 1.5 * early.get(name, 0) + 3}


@pytest.mark.parametrize("name", POLICIES)
def test_it_forgets_jobs_that_are_gone(name: str) -> None:
    assert grown(loaded(name), WEIGHTS_FOR.get(name, "3x4")) == {}


def test_what_grows_is_named() -> None:
    assert grown(Remembering(), "3x4").keys() == {"Remembering.seen"}
