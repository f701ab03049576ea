"""The jobs of a node, for tests of the registry."""

from nodeagent.identity.peer import JobProcess
from nodeagent.jobsocket.registry import JobRegistry
from nodeagent.wire.frames import parse
from tests.unit.nodeagent.wire.packets import packet

S = 1_000_000_000


class Node:
    """A registry of jobs, with short methods for events. Times are in seconds."""

    def __init__(self, window_s=60.0):
        self.jobs = JobRegistry(window_s)
        self.now_s = 1000.0
        self.connections = 0
        self.sent = {}

    @property
    def now_ns(self):
        return round(self.now_s * S)

    def connect(self, job_id=7, pid=None, start=1, step_id="0", **hello):
        self.connections += 1
        process = JobProcess(pid or 100 + self.connections, 1000, start, job_id, step_id, "cgroup")
        self.jobs.opened(self.connections, process, self.now_ns)
        self.say(self.connections, "hello", **{"job_id": job_id, "pid": 1, "rank": -1} | hello)
        return self.connections

    def say(self, connection, kind, **fields):
        self.jobs.received(connection, parse(packet(kind, **fields)), self.now_ns)

    def step(self, connection, steps):
        """Send a steps frame whose newest step ends now. The first frame covers the evenly spread steps of a second."""
        first_s = self.sent.setdefault((connection, "first"), self.now_s - 1 + 1 / steps)
        before_steps, before_s = self.sent.get(connection, (0, self.now_s - 1))
        self.sent[connection] = steps, self.now_s
        self.say(
            connection,
            "steps",
            steps=steps,
            first_ns=round(first_s * S),
            last_ns=self.now_ns,
            window_steps=steps - before_steps,
            window_s=self.now_s - before_s,
        )

    def train(self, connections, per_s, seconds):
        """Send a frame of each connection every second."""
        for _ in range(seconds):
            self.now_s += 1
            for connection in connections:
                self.step(connection, self.sent.get(connection, (0, 0))[0] + per_s)

    def close(self, connection, *, bye=False):
        if bye:
            self.say(connection, "bye")
        self.jobs.closed(connection, self.now_ns)

    def rows(self):
        return self.jobs.rows(self.now_ns)

    def row(self):
        [row] = self.rows()
        return row
