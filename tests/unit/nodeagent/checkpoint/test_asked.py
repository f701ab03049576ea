"""Ranks that an agent asks to save stand still at one step, and train on when they may, as if nothing had been."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.nodeagent.checkpoint.conftest import Hatchery, Started
from tests.unit.nodeagent.checkpoint.node import Node
from tests.unit.nodeagent.checkpoint.test_resume import checkpoints

STEPS = 60


class Job:
    """Runs of one program under the agent of one node."""

    def __init__(self, hatchery: Hatchery, node: Node, folder: Path) -> None:
        self._hatchery = hatchery
        self._node = node
        self.folder = folder

    async def begin(self, world: int = 2, steps: int = STEPS, **args: Any) -> Started:
        args = {"folder": self.folder, "steps": steps, "socket": self._node.socket} | args
        started = await asyncio.to_thread(self._hatchery.begin, "asked.train", world, **args)
        await self._node.trains(started)
        return started


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = Node(tmp_path)
    async with node.agent_runs():
        yield node


@pytest.fixture
def job(hatchery: Hatchery, node: Node, folder: Path) -> Job:
    return Job(hatchery, node, folder)


@pytest.mark.parametrize("world", [1, 2])
async def test_all_stand_still_at_one_step_and_go_on_as_if_nothing_had_been(
    node: Node, job: Job, hatchery: Hatchery, tmp_path: Path, world: int
) -> None:
    started = await job.begin(world)

    save = node.ask()
    answer = await node.answer(save)
    assert (answer.problem, answer.ranks, answer.world_size) == ("", tuple(range(world)), world)
    await node.stands(started, answer.step)
    assert [int(path.name.split("-")[1]) for path in checkpoints(job.folder)] == [answer.step]
    node.go_on(save)

    ended = await asyncio.to_thread(started.wait)
    assert ended.ends == [0] * world, ended.logs
    whole = await asyncio.to_thread(hatchery.run, "train", world, folder=tmp_path / "whole", steps=STEPS)
    for rank in range(world):
        assert ended.losses(rank) == pytest.approx(whole.losses(rank), abs=1e-6)
