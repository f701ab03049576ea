"""Users that send open files whose release hangs: the agent goes on."""

import pytest

from nodeagent.wire.frames import Hello
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, heard, until
from tests.unit.policies.serving.runtime.lingering_file import lingering, older_kernel

__all__ = ["lingering"]


class FirstInNoJob(InJob):
    """The first process is in no job, all others are."""

    refused = False

    def identify(self, peer, pidfd):
        if not self.refused:
            self.refused = True
            return InJob(None).identify(peer, pidfd)
        return super().identify(peer, pidfd)


async def served(server):
    """Return True once another process is welcomed and heard."""
    job = Job(server.path)
    assert (await job.hear())["type"] == "welcome"
    job.say("hello")
    await until(lambda: any(isinstance(frame, Hello) for each in heard(server).frames.values() for frame in each))
    return True


@pytest.mark.parametrize("data", [b"rubbish", b""])
async def test_a_process_of_a_job_that_sends_a_file_loses_its_connection_and_others_are_served(
    serve, monkeypatch, lingering, data
):
    closer = older_kernel(monkeypatch)
    server = serve()
    hostile = Job(server.path)
    await hostile.hear()
    lingering.send_by(hostile.sock, data)
    await until(lambda: heard(server).gone)
    assert closer.held == 1  # the file is not released yet
    assert await served(server)
    assert closer.held == 1
    assert server.counters().closed_for_cause == 1
    assert server.counters().connections == 1
    lingering.let_go()
    await until(lambda: closer.held == 0)


async def test_a_process_in_no_job_that_sends_a_file_is_refused_and_others_are_served(serve, monkeypatch, lingering):
    closer = older_kernel(monkeypatch)
    server = serve(FirstInNoJob())
    lingering.send_by(Job(server.path).sock)
    await until(lambda: server.counters().refused)
    assert closer.held == 1
    assert await served(server)
    assert closer.held == 1
    lingering.let_go()
    await until(lambda: closer.held == 0)


async def test_connections_with_files_that_nothing_was_read_from_do_not_delay_the_end(serve, monkeypatch, lingering):
    closer = older_kernel(monkeypatch)
    server = serve()
    lingering.send_by(Job(server.path).sock)  # neither accepted nor read
    server.close()
    assert closer.held == 1
    lingering.let_go()
    await until(lambda: closer.held == 0)


async def test_frames_without_files_are_heard_on_older_kernels(serve, monkeypatch):
    closer = older_kernel(monkeypatch)
    server = serve()
    job = Job(server.path)
    job.say("hello")
    for steps in range(1, 50):
        job.say("steps", steps=steps)
    job.close()
    await until(lambda: heard(server).gone)
    [frames] = heard(server).frames.values()
    assert len(frames) == 50
    assert closer.held == 0
