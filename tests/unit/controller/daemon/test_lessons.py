"""Ends of jobs reach the policy server in order, also after it was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from controller.base.clock import RealClock
from controller.cycle.decision.decider import Decider
from controller.daemon import lessons
from controller.daemon.lessons import OutcomeQueue
from controller.slurm.model.job import JobKey
from controller.state.journal import RunRecord
from policies.api import Decision, Outcome, PolicySpec, load_policy
from policies.errors import PolicyFault
from policies.model import ClusterState
from policies.serving.client import PolicyClient
from policies.serving.server import PolicyServer
from tests.unit.policies.processes import eventually


def ended(*numbers: int) -> list[RunRecord]:
    return [
        RunRecord(
            key=JobKey(str(number), 1), user="ann", name="train", num_gpus=1, num_nodes=1, start_time_s=2.0, end_time_s=3.0,
            service_s=1.0, state="COMPLETED",
        )
        for number in numbers
    ]  # fmt: skip


def test_an_end_that_cannot_be_reported_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = lessons._outcome

    def broken(run: RunRecord) -> Outcome:
        if run.key.job_id == "2":
            raise ArithmeticError("a number that is none")
        return made(run)

    monkeypatch.setattr(lessons, "_outcome", broken)
    queue = OutcomeQueue()
    queue.add(ended(1, 2, 3))
    assert [outcome.job_id for outcome in queue._waiting] == ["1", "3"]


class Server:
    """A policy server with faults in turn, which then receives everything; it always refuses the outcomes in `poison`."""

    def __init__(self, *faults: PolicyFault, poison: frozenset[str] = frozenset()) -> None:
        self.faults = list(faults)
        self.poison = poison
        self.reports: list[list[str]] = []
        self.learned: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    async def learn(self, outcomes: Sequence[Outcome]) -> PolicyFault | None:
        names = [outcome.job_id for outcome in outcomes]
        self.reports.append(names)
        if self.faults:
            self.meanwhile()
            return self.faults.pop(0)
        if self.poison & set(names):
            return PolicyFault.FAILED
        self.learned += names
        return None


class Pauses:
    """Pauses that take no time."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def reporting(queue: OutcomeQueue, learner: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.report_to(learner))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def learned(server: Server, *numbers: int) -> None:
    async def all_of_them() -> bool:
        return server.learned == [str(number) for number in numbers]

    await eventually(all_of_them)


async def test_outcomes_wait_for_a_server_that_is_away_and_keep_their_order() -> None:
    server, pauses = Server(*[PolicyFault.UNREACHABLE, PolicyFault.DEADLINE] * 4), Pauses()
    queue = OutcomeQueue(pause=pauses)
    later = iter(range(3, 30))
    server.meanwhile = lambda: queue.add(ended(next(later)))
    queue.add(ended(1, 2))
    async with reporting(queue, server):
        await learned(server, *range(1, 11))
    assert pauses.asked_s == [1, 2, 4, 8, 16, 32, 60, 60]


async def test_a_full_queue_drops_the_oldest_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "_MOST", 4)
    monkeypatch.setattr(lessons, "_BATCH", 3)
    lost: list[int] = []
    server, queue = Server(PolicyFault.UNREACHABLE), OutcomeQueue(lost.append, Pauses())
    queue.add(ended(1, 2, 3, 4, 5))
    assert sum(lost) == 1
    # when two more end while the first three are on their way in vain
    server.meanwhile = lambda: queue.add(ended(6, 7))
    async with reporting(queue, server):
        await learned(server, 4, 5, 6, 7)
    assert sum(lost) == 3


async def test_an_outcome_that_the_policy_refuses_again_and_again_does_not_keep_the_others_back() -> None:
    lost: list[int] = []
    server, queue = Server(poison=frozenset({"2", "5"})), OutcomeQueue(lost.append, Pauses())
    queue.add(ended(1, 2, 3, 4, 5, 6))
    async with reporting(queue, server):
        await learned(server, 1, 3, 4, 6)
    assert sum(lost) == 2


async def test_a_report_that_is_cut_off_is_made_again() -> None:
    class Hanging:
        async def learn(self, _outcomes: Sequence[Outcome]) -> None:
            begun.set()
            await asyncio.Event().wait()

    begun, server, queue = asyncio.Event(), Server(), OutcomeQueue()
    queue.add(ended(1, 2))
    async with reporting(queue, Hanging()):
        await asyncio.wait_for(begun.wait(), 30)
    async with reporting(queue, server):
        await learned(server, 1, 2)


class Student:
    """A policy that learns."""

    spec = PolicySpec(name="student", source="tests")

    def __init__(self) -> None:
        self.learned: list[str] = []

    def decide(self, _state: ClusterState) -> Decision:
        return Decision({})

    def learn(self, outcome: Outcome) -> None:
        self.learned.append(outcome.job_id)


async def test_a_server_that_starts_later_learns_of_the_jobs_that_ended_before() -> None:
    # given a server that has ended
    gone = PolicyServer(Student(), "127.0.0.1:0")
    await gone.start()
    await gone.stop(0)
    failed = asyncio.Event()

    async def pause(_seconds: float) -> None:
        failed.set()
        await asyncio.sleep(0.05)

    decider, queue = (
        Decider(PolicyClient(gone.address), load_policy("fifo"), 0.5, RealClock()),
        OutcomeQueue(pause=pause),
    )
    async with reporting(queue, decider):
        # when jobs end before the next one starts
        queue.add(ended(1, 2))
        await asyncio.wait_for(failed.wait(), 60)
        queue.add(ended(3))
        student = Student()
        server = PolicyServer(student, gone.address)
        await server.start()

        async def knows_all() -> bool:
            return list(dict.fromkeys(student.learned)) == ["1", "2", "3"]

        # then it learns of them
        await eventually(knows_all)
    await decider.close()
    await server.stop(0)
