"""Fixtures: job sockets, and the jobs of a node."""

import pytest

from nodeagent.jobsocket.rate_limit import Limits
from nodeagent.jobsocket.server import JobSocket
from tests.unit.nodeagent.jobsocket.node import Node
from tests.unit.nodeagent.jobsocket.peers import InJob, Remembered, close_all


@pytest.fixture
async def serve(tmp_path):
    """serve(...) opens a server with these options; its jobs connect to `server.path`."""
    opened = []

    def open_one(identify=None, limits=None, path=None, **options):
        server = JobSocket(
            path or tmp_path / "run" / "job.sock",
            identify or InJob(),
            Remembered(),
            limits or Limits(),
            **{"gather_s": 0.0} | options,
        )
        server.open()
        opened.append(server)
        return server

    yield open_one
    close_all()
    for server in opened:
        server.close()


@pytest.fixture
def node():
    return Node()
