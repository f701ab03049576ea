"""Limits on connections and frames, on real sockets."""

import asyncio

from nodeagent.jobsocket.rate_limit import Limits
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, until


async def test_a_connection_that_sends_too_much_is_closed(serve):
    server = serve(limits=Limits(frames_per_s=0.001, frames_burst=5))
    job = Job(server.path)
    await job.hear()
    job.say("hello")
    for _ in range(5):
        job.say("steps")
    assert await job.hear() is None
    assert server.counters().frames == 5
    assert server._counters.reasons == {"too many frames": 1}


async def test_one_user_gets_so_many_connections_and_others_theirs(serve):
    identify = InJob()
    server = serve(identify, Limits(connections=5, connections_per_user=3))
    mine = [Job(server.path) for _ in range(4)]
    assert [(await job.hear()) is not None for job in mine] == [True, True, True, False]
    mine[0].close()
    await until(lambda: server.counters().connections == 2)
    again = Job(server.path)
    assert await again.hear() is not None


async def test_so_many_connections_in_all(serve):
    server = serve(limits=Limits(connections=2))
    jobs = [Job(server.path) for _ in range(3)]
    assert [(await job.hear()) is not None for job in jobs] == [True, True, False]


async def test_a_user_s_frames_are_charged_by_size(serve):
    server = serve(limits=Limits(frames_per_s=10_000, frames_burst=10_000))
    job = Job(server.path)
    await job.hear()
    job.say("hello")
    sent = 0
    while not server.counters().closed_for_cause:  # 4,000 tokens at once, 64 a frame: some sixty
        try:
            job.say("bye", x="x" * 64_000)
            sent += 1
        except BlockingIOError:
            pass
        except BrokenPipeError:
            break
        await asyncio.sleep(0)
        assert sent < 2000
    assert server._counters.reasons == {"too many frames of this user": 1}
