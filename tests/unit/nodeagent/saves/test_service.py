"""Saves and news of jobs through a whole agent: many ranks, and jobs that lie, on real sockets."""

import asyncio
import time
from dataclasses import replace

import pytest

from nodeagent.saves.coordinator import SaveAnswer, SaveRequest
from tests.unit.headway_job.checkpoints.ranks.node import JOB, Node
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, close_all, until

RANKS = 64


@pytest.fixture
async def node(tmp_path):
    node = Node(tmp_path)
    async with node.agent_runs():
        yield node
        close_all()


async def rank_of(node, rank, world, job=JOB):
    """Return a process that has called headway_job.checkpoint."""
    node.agent.job_socket._identify = InJob(job)
    peer = Job(node.socket)
    assert (await peer.hear())["type"] == "welcome"
    peer.say("hello", rank=rank, world_size=world, pid=100 + rank)
    peer.say("checkpoint", rank=rank, world_size=world)
    return peer


async def obey(peer, rank, world, **saved):
    """Act as a rank: save and pause. Return the requests that it received."""
    heard = []
    while (frame := await peer.hear()) is not None:
        heard.append((frame["type"], frame["id"]))
        if frame["type"] == "save":
            assert frame["still_s"] == 120.0
            peer.say("checkpoint", rank=rank, world_size=world, saving=True, saved=40)
            peer.say("saved", **{"id": frame["id"]} | saved)
        else:
            return heard
    return heard


async def test_sixty_four_ranks_are_one_answer_and_few_rows(node, monkeypatch):
    pids = iter(range(1000, 1000 + RANKS))
    one_each = InJob.identify
    monkeypatch.setattr(InJob, "identify", lambda *args: replace(one_each(*args), pid=next(pids)))
    begun_s = time.monotonic()
    peers = [await rank_of(node, rank, RANKS) for rank in range(RANKS)]
    await until(lambda: node.heard.checkpoint.ranks == tuple(range(RANKS)))
    assert node.heard.hasty <= 5 + (time.monotonic() - begun_s)  # four at once, one a second
    ranks = [asyncio.create_task(obey(peer, rank, RANKS)) for rank, peer in enumerate(peers)]

    save = node.ask()
    answer = await node.answer(save)
    assert answer == SaveAnswer(save, "", tuple(range(RANKS)), RANKS, 40)
    node.go_on(save)
    assert await asyncio.gather(*ranks) == [[("save", save), ("go_on", save)]] * RANKS
    assert len(node.heard.answers) == 1
    assert node.agent.job_socket.counters().dropped_sends == 0


async def test_a_job_that_lies_answers_for_no_other_job(node):
    honest = await rank_of(node, 0, 1)
    liar = await rank_of(node, 0, 1, job=8)
    saves = node.agent.save_service.saves
    await until(lambda: len(node.agent.jobs.training_processes(8, 0)) == 1 and node.trainers())

    honest.say("saved", id="p9.9")  # which was not requested to save
    await until(lambda: saves.ignored == 1)
    save = node.ask()
    assert (await honest.hear())["id"] == save
    liar.say("saved", id=save)  # another job's
    honest.say("saved", id="p9.9")
    await until(lambda: saves.ignored == 3)
    assert node.heard.answers == []

    honest.say("checkpoint", rank=0, world_size=1, saving=True)
    honest.say("saved", id=save)
    assert (await node.answer(save)).ranks == (0,)
    honest.say("saved", id=save, complete=False)
    await until(lambda: saves.ignored == 4)
    assert len(node.heard.answers) == 1


async def test_a_job_that_has_news_all_the_time_costs_few_rows(node):
    begun_s = time.monotonic()
    peer = await rank_of(node, 0, 1)
    for saved in range(60):
        peer.say("checkpoint", rank=0, world_size=1, saved=saved)
        await asyncio.sleep(0.01)
    await until(lambda: node.heard.checkpoint.saved_step == 59)
    assert node.heard.hasty <= 5 + (time.monotonic() - begun_s)
    assert node.agent.job_socket.counters().closed_for_cause == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"id": ""}, "an id of 0 characters"),
        ({"id": "p" * 256}, "an id of 256 characters"),
        ({"within_s": 0.0}, "within_s 0"),
        ({"within_s": float("nan")}, "within_s nan"),
        ({"still_s": 1e9}, "still_s 1e"),
    ],
)
async def test_what_cannot_be_asked_is_refused(node, change, why):
    order = {"id": "p1.1", "job_id": JOB, "restart": 0, "within_s": 60.0, "still_s": 120.0} | change
    assert why in node.agent.request_save(SaveRequest(**order))
    assert not node.agent.save_service.saves.open
