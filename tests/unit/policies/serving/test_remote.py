"""A policy server as a policy, for programs without an event loop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policies.api import Decision
from policies.errors import PolicyFault, PolicyLoadError, PolicyServerError
from policies.model import Placement
from policies.serving.remote import RemotePolicy
from tests.unit.policies.processes import running, serve_command, until_accepted
from tests.unit.policies.states.cluster import Job, Node, cluster

STATE = cluster([Node(), Node()], [Job(gpus=6), Job(gpus=4)], sequence=7)
BOTH = {0: Placement((0,), (6,)), 1: Placement((1,), (4,))}


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix://{tmp_path}/policy.sock"


@pytest.fixture
def server(address: str) -> Iterator[int]:
    """A server of fifo-skip; yields its process id."""
    with running(*serve_command("fifo-skip", address)) as process:
        until_accepted(address)
        yield process.pid


def test_the_server_decides(server: int, address: str) -> None:
    with closing(RemotePolicy.parse(address)) as policy:
        assert policy.spec.name == "fifo-skip"
        assert [policy.decide(STATE).allocation for _ in range(3)] == [BOTH] * 3
        assert (policy.decisions, policy.fallback_decisions) == (3, 0)


def test_no_text_is_made_of_a_decision(server: int, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`asyncio.Runner` makes a text of its task's result, which takes milliseconds for a decision on a long queue."""
    texts: list[Decision] = []

    def noted(decision: Decision) -> str:
        texts.append(decision)
        return "a decision"

    with closing(RemotePolicy.parse(address)) as policy:
        monkeypatch.setattr(Decision, "__repr__", noted)
        decision = policy.decide(STATE)
        monkeypatch.undo()
    assert decision.allocation == BOTH
    assert texts == []


def test_a_fallback_decides_while_the_server_hangs(server: int, address: str) -> None:
    with closing(RemotePolicy.parse(f"{address}?deadline_s=0.2&fallback=fifo")) as policy:
        assert policy.spec.name == "fifo-skip"
        os.kill(server, signal.SIGSTOP)
        assert policy.decide(STATE).allocation == BOTH
        assert (policy.decisions, policy.fallback_decisions) == (1, 1)
        assert "deadline" in policy.first_problem
        os.kill(server, signal.SIGCONT)
        for _ in range(50):  # a busy machine may need more than the deadline for the first ones
            assert policy.decide(STATE).allocation == BOTH
            if policy.fallback_decisions < policy.decisions - 1:
                return
        raise AssertionError("the server goes on, and decides nothing")


def test_without_a_fallback_a_server_that_dies_is_an_error(server: int, address: str) -> None:
    with closing(RemotePolicy.parse(address)) as policy:
        policy.decide(STATE)
        os.kill(server, signal.SIGKILL)
        with pytest.raises(PolicyServerError, match=r"\(decision 2, at 1000 s\)") as caught:
            policy.decide(STATE)
        assert caught.value.fault is PolicyFault.UNREACHABLE


def test_a_fallback_that_stops_jobs_is_refused_where_the_policy_does_not(server: int, address: str) -> None:
    with (
        closing(RemotePolicy.parse(f"{address}?fallback=srtf")) as policy,
        pytest.raises(PolicyLoadError, match="the fallback srtf stops or resizes jobs, and policy fifo-skip does not"),
    ):
        policy.spec  # noqa: B018


def test_a_fallback_that_chooses_gpus_is_refused_where_the_policy_does_not(server: int, address: str) -> None:
    with (
        closing(RemotePolicy.parse(f"{address}?fallback=fifo-skip:gpus=packed")) as policy,
        pytest.raises(
            PolicyLoadError, match="the fallback fifo-skip chooses GPUs of nodes, and policy fifo-skip does not"
        ),
    ):
        policy.spec  # noqa: B018


def test_a_fallback_decides_once_about_a_state(server: int, address: str) -> None:
    with closing(RemotePolicy.parse(f"{address}?fallback=fifo")) as policy:
        policy.decide(STATE)
        instead = policy.decide_instead(STATE, "impossible")
        assert instead is not None
        assert instead.allocation == BOTH
        assert policy.decide_instead(STATE, "impossible again") is None
        assert (policy.decisions, policy.fallback_decisions, policy.first_problem) == (1, 1, "impossible")


def test_it_may_be_closed_without_a_connection(address: str) -> None:
    RemotePolicy.parse(address).close()
