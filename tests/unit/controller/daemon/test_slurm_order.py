"""Readings that Slurm's priorities depend on: only what the weights need is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from controller.daemon.slurm_order import read_slurm_order
from controller.observe.slurm_order import PriorityFacts
from controller.slurm.client import SlurmFacts
from controller.slurm.model.shares import Shares
from policies.serving.runtime.tasks.supervise import Tasks

READ = Shares(association={("lab", "ann", ""): 5})
LIMIT_S = 60.0


async def first_reading(settings: Mapping[str, str]) -> tuple[list[bool], PriorityFacts | None]:
    """Return the calls for shares, with their argument, and the facts of the first reading on a Slurm with these settings."""
    calls: list[bool] = []
    used: asyncio.Queue[PriorityFacts | None] = asyncio.Queue()
    facts = SlurmFacts((22, 5, 8), "test", "command-line", {"PriorityType": "priority/multifactor", **settings})

    async def shares(*, associations: bool) -> Shares:
        calls.append(associations)
        return READ

    async with read_slurm_order(lambda: facts, shares, used.put_nowait, Tasks()), asyncio.timeout(LIMIT_S):
        return calls, await used.get()


@pytest.mark.parametrize(
    ("settings", "calls"),
    [
        ({"PriorityWeightAge": "1000"}, []),
        ({"PriorityWeightFairShare": "1000"}, [False]),
        ({"PriorityWeightQOS": "1000"}, [False]),
        ({"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}, [False]),
        ({"PriorityWeightAssoc": "1000"}, [True]),
        ({"PriorityWeightAssoc": "1000", "PriorityWeightFairShare": "1000"}, [True]),
    ],
)
async def test_only_what_the_weights_need_is_read(settings: Mapping[str, str], calls: list[bool]) -> None:
    made, found = await first_reading(settings)
    assert made == calls
    assert found is not None
    assert found.shares == (READ if calls else Shares())
