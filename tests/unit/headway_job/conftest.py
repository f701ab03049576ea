"""An agent, and a program that reports to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.headway_job.agent import Agent, Program

pytest.importorskip("torch")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    agent.close()


@pytest.fixture
def program(tmp_path: Path, agent: Agent) -> Program:
    return Program(tmp_path, agent)
