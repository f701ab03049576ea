"""Watchdog, policy server and agents of a story stand still or end as real ones do, and stories let them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from controller.slurm.embedded import Submission, sbatch_request
from controller.slurm.embedded.ctld.job import Job
from controller.slurm.model.job import NodeShare, Phase
from policies.errors import PolicyFault, PolicyServerError
from protos.headway.v1 import agent_pb2
from tests.campaign.plot.generate import make_story
from tests.campaign.plot.other_processes import ARGUMENTS
from tests.campaign.world.fleet import Fleet
from tests.campaign.world.policy import StoryEndpoint, StoryServer
from tests.campaign.world.processes import Process, in_flight
from tests.campaign.world.virtual_loop import VirtualLoop

_STORIES_BEFORE = "35ed323f7159d16bf456d65159c9d5a32611a31348d466c133fda8e45a6a9faf"
"""Digest of the stories 2000 to 2199 as they were before other processes than the controller stood still in them."""

_LATER = frozenset(ARGUMENTS) | {"user_changes"}
_TEXTS = frozenset({"name", "comment", "account", "partition"})
"""Fields of jobs and stories that are for texts of users."""


def _without_texts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in _TEXTS}


def on_a_virtual_loop(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine on a loop whose tasks may be processes."""
    loop = VirtualLoop()
    loop.set_task_factory(Process.factory)
    try:
        return loop.run_until_complete(story())
    finally:
        loop.close()


def test_without_these_faults_the_stories_of_a_seed_are_those_of_earlier_versions() -> None:
    """New kinds of steps are put between the steps by a generator of their own, so that what a seed once found it finds again.

    If a new kind comes, it is left out here too, and the digest stays.
    """
    digest = hashlib.sha256()
    for seed in range(2000, 2200):
        story = make_story(seed, plain=True)
        steps = [step for step in story.steps if step.verb not in _LATER]
        steps = [replace(step, args=_without_texts(step.args)) if step.verb == "submit" else step for step in steps]
        earlier = replace(story, steps=tuple(steps))
        digest.update(json.dumps(_without_texts(asdict(earlier)), sort_keys=True).encode())
    assert digest.hexdigest() == _STORIES_BEFORE


def test_stories_stop_and_end_watchdogs_policy_servers_and_agents() -> None:
    stories = [make_story(seed) for seed in range(40)]
    kinds = Counter(step.verb for story in stories for step in story.steps)
    assert min(kinds[verb] for verb in ARGUMENTS) > 5
    assert all(any(step.verb in ARGUMENTS for step in story.steps) for story in stories)


# --- requests


def test_a_request_in_flight_goes_on_while_its_sender_stands_still() -> None:
    seen: list[tuple[str, float]] = []

    def note(what: str) -> None:
        seen.append((what, asyncio.get_running_loop().time()))

    async def request() -> str:
        await asyncio.sleep(1.0)
        note("carried out")
        return "answer"

    async def main() -> None:
        note(await in_flight(request()))

    async def story() -> None:
        process = Process("watchdog")
        process.start(main())
        await asyncio.sleep(0.5)
        process.stop()
        await asyncio.sleep(9.5)
        process.cont()
        await asyncio.sleep(1.0)

    on_a_virtual_loop(story)
    assert seen == [("carried out", 1.0), ("answer", 10.0)]


def test_a_request_whose_sender_is_told_to_end_while_it_stands_still_is_carried_out() -> None:
    seen: list[str] = []

    async def request() -> None:
        await asyncio.sleep(1.0)
        seen.append("carried out")

    async def main() -> None:
        try:
            async with asyncio.timeout(0.7):
                await in_flight(request())
        except TimeoutError:
            seen.append("too late")

    async def story() -> None:
        process = Process("controller")
        process.start(main())
        await asyncio.sleep(0.5)
        process.stop()
        await asyncio.sleep(9.5)
        process.cont()
        await asyncio.sleep(1.0)

    on_a_virtual_loop(story)
    assert seen == ["carried out", "too late"]


@pytest.mark.parametrize("end", ["kill", "cancel"])
def test_a_request_ends_with_its_sender_or_its_call(end: str) -> None:
    seen: list[str] = []

    async def request() -> None:
        await asyncio.sleep(1.0)
        seen.append("carried out")

    async def story() -> None:
        process = Process("controller")
        process.start(in_flight(request()))
        assert process.main is not None
        await asyncio.sleep(0.5)
        process.kill() if end == "kill" else process.main.cancel()
        await asyncio.sleep(9.5)

    on_a_virtual_loop(story)
    assert seen == []


# --- agents


class Ranks:
    """One job of two nodes that trains a step a second, its agents, and what they have said."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.fleet = Fleet(["n1", "n2"], loop.time, loop.time)
        request = sbatch_request(gpus_per_node=1, nodes=2)
        self.job = Job(
            "7", Submission(request=request, duration_s=600.0), request, "dl", 0, 1, 0, None, None, "", requeue=True,
            allocated=tuple(NodeShare(node, 1, 1, 1, 1024) for node in ("n1", "n2")), raw_id=7, phase=Phase.RUNNING,
        )  # fmt: skip
        self.fleet.started(self.job)
        self.said: list[tuple[str, str, str]] = []
        self.parted: list[str] = []
        self.fleet.attach(self._hear, lambda _: None, self.parted.append)

    def _hear(self, node: str, report: agent_pb2.AgentReport) -> None:
        if report.WhichOneof("kind") == "answer":
            answer = report.answer
            self.said.append(
                (node, answer.id, agent_pb2.AnswerReason.Name(answer.reason).removeprefix("ANSWER_REASON_"))
            )

    async def send(self, node: str, save_id: str, *, go_on: bool = False) -> None:
        """Send a request, and wait until the agent has heard it."""
        name = agent_pb2.JobName(job_id=7)
        if go_on:
            command = agent_pb2.AgentCommand(id=f"{save_id}.go", job=name, go_on=agent_pb2.GoOnRequest(save_id=save_id))
        else:
            save = agent_pb2.SaveRequest(within_s=10.0, still_s=300.0)
            command = agent_pb2.AgentCommand(id=save_id, job=name, save=save)
        assert self.fleet.send_command(node, command)
        await asyncio.sleep(0.5)

    async def save(self, save_id: str) -> None:
        """Send the request to save to both nodes."""
        for node in ("n1", "n2"):
            await self.send(node, save_id)

    def stand_still(self) -> bool | None:
        """True while the ranks are paused at the step that they have saved."""
        return self.fleet.standing("7")


def test_a_late_message_about_an_earlier_save_changes_nothing() -> None:
    async def story() -> None:
        ranks = Ranks()
        await ranks.save("p1.1")
        await ranks.send("n1", "p1.1", go_on=True)
        assert not ranks.stand_still()
        await ranks.save("p1.2")
        assert ranks.stand_still()
        ranks.said.clear()
        await ranks.send("n2", "p1.1", go_on=True)
        await ranks.send("n2", "p1.1")
        assert ranks.stand_still()
        assert ranks.said == [("n2", "p1.1", "CALLED_OFF")]
        await ranks.send("n2", "p1.2", go_on=True)
        assert not ranks.stand_still()

    on_a_virtual_loop(story)


def test_a_save_is_carried_out_once() -> None:
    async def story() -> None:
        ranks = Ranks()
        await ranks.save("p1.1")
        saved = ranks.fleet.runs["7"].saved
        await asyncio.sleep(200.0)
        await ranks.send("n1", "p1.1")
        assert (ranks.stand_still(), ranks.fleet.runs["7"].saved) == (True, saved)
        await asyncio.sleep(150.0)  # the repeated request has not made the pause longer
        ranks.said.clear()
        await ranks.send("n1", "p1.1")
        assert (ranks.stand_still(), ranks.said) == (False, [("n1", "p1.1", "TRAINED_ON")])

    on_a_virtual_loop(story)


def test_what_is_sent_to_an_agent_that_stands_still_reaches_it_afterwards() -> None:
    async def story() -> None:
        ranks = Ranks()
        ranks.fleet.stop("n2")
        await ranks.save("p1.1")
        await asyncio.sleep(20.0)
        assert (ranks.stand_still(), ranks.said) == (False, [])
        ranks.fleet.cont("n2")
        assert (ranks.stand_still(), len(ranks.said)) == (True, 2)

    on_a_virtual_loop(story)


def test_an_agent_answers_only_when_it_continues() -> None:
    async def story() -> None:
        ranks = Ranks()
        await ranks.send("n2", "p1.1")
        ranks.fleet.stop("n2")
        await ranks.send("n1", "p1.1")
        assert (ranks.stand_still(), [node for node, *_ in ranks.said]) == (True, ["n1"])
        ranks.fleet.cont("n2")
        assert [node for node, *_ in ranks.said] == ["n1", "n2"]

    on_a_virtual_loop(story)


def test_the_connection_of_an_agent_that_stands_still_for_long_is_closed() -> None:
    async def story() -> None:
        ranks = Ranks()
        ranks.fleet.stop("n2")
        await ranks.save("p1.1")
        await asyncio.sleep(100.0)
        assert (ranks.parted, ranks.fleet.nodes["n2"].connected) == (["n2"], False)
        ranks.fleet.cont("n2")
        assert (ranks.stand_still(), ranks.fleet.nodes["n2"].connected) == (False, True)

    on_a_virtual_loop(story)


# --- policy servers


async def outcome_of_a_call(server: StoryServer, deadline_s: float) -> tuple[str, float]:
    """Describe the policy. Return the outcome, and how long that took."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    try:
        await StoryEndpoint(server).describe(deadline_s)
    except PolicyServerError as error:
        return error.fault.name, round(loop.time() - begun_s, 3)
    return "answered", round(loop.time() - begun_s, 3)


@pytest.mark.parametrize(
    ("deadline_s", "expected"), [(10.0, ("answered", 5.0)), (1.0, (PolicyFault.DEADLINE.name, 1.1))]
)
def test_a_policy_server_that_stands_still_answers_when_it_continues(
    deadline_s: float, expected: tuple[str, float]
) -> None:
    async def story() -> tuple[str, float]:
        server = StoryServer("fifo", answer_s=0.1)
        server.stop()
        asyncio.get_running_loop().call_later(5.0, server.cont)
        return await outcome_of_a_call(server, deadline_s)

    assert on_a_virtual_loop(story) == expected


def test_calls_to_a_policy_server_fail_at_its_end() -> None:
    async def story() -> list[tuple[str, float]]:
        server, loop = StoryServer("fifo", answer_s=2.0), asyncio.get_running_loop()
        loop.call_later(1.0, server.end)
        loop.call_later(5.0, server.recover)
        found = [await outcome_of_a_call(server, 10.0) for _ in range(2)]
        await asyncio.sleep(5.0)
        return [*found, await outcome_of_a_call(server, 10.0)]

    unreachable = PolicyFault.UNREACHABLE.name
    assert on_a_virtual_loop(story) == [(unreachable, 1.0), (unreachable, 2.0), ("answered", 2.0)]
