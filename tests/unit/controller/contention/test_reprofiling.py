"""A job whose neighbours change is profiled again, within the bound for each hour."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controller.base.clock import VirtualClock
from controller.contention.reprofiling import HOUR_S, Reprofiling, profile_beside_others
from controller.profiles.current import Contention
from controller.profiles.windows import Neighbour, RunKey, RunShape, Throughput, Trained
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import Phase
from protos.headway.v1 import agent_pb2
from tests.unit.controller.worlds.preempted import preempted_world
from tests.unit.controller.worlds.world import newest
from tests.unit.policies.processes import eventually


class FakeAgents:
    """Records the requests; every node answers with `problem`."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, int]] = []
        self.problem = ""

    async def request(self, nodes: Iterable[str], job: agent_pb2.JobName, steps: int) -> Mapping[str, str]:
        self.requests.append((job.job_id, job.restart, steps))
        return dict.fromkeys(nodes, self.problem)


def job(number: int, restarts: int = 0, phase: Phase = Phase.RUNNING) -> Any:
    share = SimpleNamespace(node="n1")
    return SimpleNamespace(
        raw_id=number, restarts=restarts, phase=phase, allocated=(share,), key=SimpleNamespace(job_id=str(number))
    )


def window(number: int, *beside: int, restart: int = 0) -> Contention:
    trained = Trained(0, "train.py", "")
    neighbours = tuple(Neighbour(RunKey(other, 0), None, None, None) for other in beside)
    shape = RunShape(1, 1)
    return Contention(
        Throughput(0.0, RunKey(number, restart), trained, shape, ("n1",), 9, 3.0, 0, None, neighbours), None
    )


class Case:
    """Jobs that run, and what is asked of their agents."""

    def __init__(self, *jobs: Any, **settings: int) -> None:
        self.jobs, self.agents, self.clock = list(jobs), FakeAgents(), VirtualClock()
        self.settings: Any = SimpleNamespace(**{"agents_profile_steps": 20, "agents_profiles_per_hour": 2, **settings})
        self.again = Reprofiling(lambda: self.settings, self._snapshot, self.agents, self.clock)

    def _snapshot(self) -> SlurmSnapshot:
        found: Any = SimpleNamespace(jobs=self.jobs)
        return found  # type: ignore[no-any-return]

    async def sees(self, *windows: Contention) -> list[int]:
        """Return the jobs that are profiled after these windows, with enough looks for all of them."""
        before = len(self.agents.requests)
        for found in windows:
            self.again.neighbours.see(found)
        for _ in range(4):
            await self.again.look()
        return [request[0] for request in self.agents.requests[before:]]


async def test_a_job_is_profiled_when_another_comes_and_when_it_leaves() -> None:
    case = Case(job(1))
    assert await case.sees(window(1)) == []
    assert await case.sees(window(1)) == []
    assert await case.sees(window(1, 2)) == [1]
    assert await case.sees(window(1, 2)) == []
    assert await case.sees(window(1)) == [1]
    assert case.agents.requests[0] == (1, 0, 20)


async def test_a_job_has_so_many_profiles_within_an_hour_and_no_more() -> None:
    case = Case(job(1), job(5))
    await case.sees(window(1), window(5))
    assert [await case.sees(window(1, other)) for other in (2, 3, 4)] == [[1], [1], []]
    assert await case.sees(window(5, 1)) == [5]
    # then the last change is still due when the hour is over
    await case.clock.advance(HOUR_S - 1)
    assert await case.sees() == []
    await case.clock.advance(2)
    assert await case.sees() == [1]


async def test_a_change_that_is_undone_before_the_request_needs_none() -> None:
    case = Case(job(1), agents_profiles_per_hour=0)
    assert await case.sees(window(1), window(1, 2)) == []
    case.settings.agents_profiles_per_hour = 2
    assert await case.sees(window(1)) == []


async def test_one_request_is_sent_at_a_time() -> None:
    case = Case(job(1), job(2), job(3))
    for number in (1, 2, 3):
        case.again.neighbours.see(window(number))
        case.again.neighbours.see(window(number, 9))
    await case.again.look()
    assert len(case.agents.requests) == 1
    assert sorted([case.agents.requests[0][0], *await case.sees()]) == [1, 2, 3]


async def test_a_refused_request_is_tried_again_and_counts() -> None:
    case = Case(job(1))
    case.agents.problem = "its agent is not connected"
    assert await case.sees(window(1), window(1, 2)) == [1, 1]
    case.agents.problem = ""
    await case.clock.advance(HOUR_S + 1)
    assert await case.sees() == [1]
    assert await case.sees() == []


async def test_only_the_present_run_of_a_running_job_is_profiled() -> None:
    case = Case(job(1, restarts=1), job(2, phase=Phase.COMPLETING))
    assert await case.sees(window(1), window(1, 7), window(2), window(2, 7)) == []
    # and after a requeue its neighbours are those of its first profile again
    assert await case.sees(window(1, 7, restart=1)) == []
    assert await case.sees(window(1, 7, 8, restart=1)) == [1]


async def test_sites_that_profile_no_jobs_profile_none_again() -> None:
    assert await Case(job(1), agents_profile_steps=0).sees(window(1), window(1, 2)) == []
    assert await Case(job(1), agents_profiles_per_hour=0).sees(window(1), window(1, 2)) == []


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


async def test_the_agents_of_its_nodes_get_the_request(folder: Path) -> None:
    async with preempted_world(folder) as cluster:
        running = await cluster.running()
        assert running.raw_id is not None
        measurement: Any = SimpleNamespace(listeners=[])
        world, clock = cluster.world, VirtualClock()

        async def asked() -> bool:
            await clock.advance(1.0)
            return all(cluster.agents[node].asked("profile") for node in ("n1", "n2"))

        async with profile_beside_others(
            lambda: world.settings, newest(world), measurement, cluster.profiling, clock, every_s=1.0
        ):
            (see,) = measurement.listeners
            see(window(running.raw_id))
            see(window(running.raw_id, 77))
            await eventually(asked)
        assert not measurement.listeners
        (command,) = cluster.agents["n1"].asked("profile")
        assert (command.job.job_id, command.profile.steps) == (running.raw_id, world.settings.agents_profile_steps)
        assert not cluster.agents["n3"].commands
