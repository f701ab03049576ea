"""An agent, and programs that report to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.headway_job.agent import Agent, Program
from tests.unit.headway_job.torch_server import ForkedProgram, TorchServer

pytest.importorskip("torch")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path)
    yield agent
    agent.close()


@pytest.fixture
def program(tmp_path: Path, agent: Agent) -> Program:
    return Program(tmp_path, agent)


@pytest.fixture(scope="session")
def torch_server() -> Iterator[TorchServer]:
    server = TorchServer()
    yield server
    server.close()


@pytest.fixture
def forked(tmp_path: Path, agent: Agent, torch_server: TorchServer) -> Program:
    """Return a program without the second of CPU time that torch takes to load."""
    return ForkedProgram(torch_server, tmp_path, agent)
