"""The whole agent: real sockets, reports into a file, signals, and parts that fail."""

import asyncio
import json
import os
import resource
import signal
import socket
import time
from contextlib import asynccontextmanager

import pytest

from nodeagent.config import AgentSettings
from nodeagent.daemon import _raise_file_limit, build_agent, stop_signals
from nodeagent.errors import SocketError, TelemetryError
from nodeagent.telemetry.nvml import CHILD, NoGpus
from nodeagent.uplink.reporter import FileReporter
from policies.serving.runtime.sdnotify import Notifier
from tests.unit.nodeagent.jobsocket.peers import InJob, Job, close_all, until
from tests.unit.nodeagent.telemetry.test_slurm_jobs import gpu


class GivenGpus(NoGpus):
    """Returns the given readings; raises a given exception, and waits for a given Event."""

    def __init__(self, answer):
        self.answer = answer
        self.closed = False

    async def read(self):
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, asyncio.Event):
            await self.answer.wait()
        return self.answer

    async def close(self):
        self.closed = True


class Place:
    """An agent of this machine with its files in a temporary folder."""

    def __init__(self, folder):
        self.folder = folder
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.notified.bind(str(folder / "notify"))
        self.environment = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "100000"}

    def agent(self, job_id=7, **settings):
        values = {
            "controller_address": "127.0.0.1:1",
            "job_socket": self.folder / "run" / "job.sock",
            "report_interval_s": 0.1,
            "gpus": "off",
            "node_name": "n1",
        }
        agent = build_agent(AgentSettings(**values | settings))
        agent.job_socket._identify = InJob(job_id)
        return agent

    @property
    def reports(self):
        path = self.folder / "reports"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def states(self):
        """The messages to systemd."""
        found = []
        while True:
            try:
                found.append(self.notified.recv(1000).decode())
            except BlockingIOError:
                return found

    @asynccontextmanager
    async def running(self, agent):
        task = asyncio.create_task(agent.run(FileReporter(self.folder / "reports"), Notifier(self.environment)))
        try:
            await until(lambda: task.done() or self.reports)
            yield task
        finally:
            agent.stop()
            await asyncio.gather(task, return_exceptions=True)
        task.result()


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    close_all()
    place.notified.close()


def own(report):
    """The rows of job 7: this machine may run jobs of others."""
    return [row for row in report["jobs"] if row["job_id"] == 7]


async def test_from_a_job_s_frames_to_a_report(place):
    agent = place.agent(profile_steps=15)
    async with place.running(agent):
        job = Job(agent.job_socket.path)
        assert (await job.hear())["profile_steps"] == 15
        job.say("hello", job_id=8)
        now_ns = agent.clock.monotonic_ns()
        job.say("steps", steps=11, first_ns=now_ns - 10**9, last_ns=now_ns)
        await until(lambda: (rows := own(place.reports[-1])) and rows[0]["steps"] and rows[0]["usage"])
        report = place.reports[-1]
    [row] = own(report)
    assert (report["node_name"], row["steps"], row["claimed_job_ids"]) == ("n1", 11, ["8"])
    assert row["steps_per_s"] == pytest.approx(10.0)
    assert row["usage"]["memory_bytes"] > 0
    assert report["gpus"] is None
    assert report["socket"]["accepted"] == 1
    assert place.reports[0]["interval_s"] is None
    assert report["interval_s"] > 0


async def test_its_metrics_are_there_while_it_runs(place):
    path = place.folder / "headway.prom"
    agent = place.agent(metrics_file=path)
    async with place.running(agent):
        job = Job(agent.job_socket.path)
        await job.hear()
        job.say("hello", job_id=7)
        now_ns = agent.clock.monotonic_ns()
        job.say("steps", steps=11, first_ns=now_ns - 10**9, last_ns=now_ns)
        await until(lambda: path.exists() and 'headway_job_steps_total{node="n1",job_id="7"} 11\n' in path.read_text())
        assert 'headway_agent_gpus_read{node="n1"} 0\n' in path.read_text()
    assert not path.exists()


async def test_gpm_is_read_where_the_setting_says_so(place):
    arguments = [place.agent(gpus="automatic", gpm=gpm).sampler.gpus._argv for gpm in ("off", "automatic")]
    assert arguments == [CHILD, (*CHILD, "--gpm")]


async def test_systemd_is_notified(place):
    agent = place.agent()
    async with place.running(agent):
        reported = []
        await until(lambda: reported.extend(place.states()) or "WATCHDOG=1" in reported)
        assert reported[0] == "READY=1"
        agent.apply_settings(report_interval_s=100.0)
        await agent_is_late(place, agent)
    assert place.states()[-1] == "STOPPING=1"


async def agent_is_late(place, agent):
    """The watchdog is not served while the last cycle ended long ago."""
    before = agent.health.cycles
    await until(lambda: agent.health.cycles > before)  # the next one is far
    agent.health.last_end_s -= 1000
    place.states()
    await asyncio.sleep(0.2)
    assert "WATCHDOG=1" not in place.states()


async def test_a_signal_ends_it_cleanly(place):
    agent = place.agent()
    agent.sampler.gpus = GivenGpus(())
    with stop_signals(agent):
        async with place.running(agent) as task:
            os.kill(os.getpid(), signal.SIGTERM)
            await until(task.done)
    assert not agent.job_socket.path.exists()
    assert agent.sampler.gpus.closed


async def test_it_ends_although_the_driver_hangs(place):
    agent = place.agent()
    async with place.running(agent) as task:
        agent.sampler.gpus = GivenGpus(asyncio.Event())
        await asyncio.sleep(0.15)
        agent.stop()
        await until(task.done)


async def test_a_cycle_that_fails_is_followed_by_another(place):
    agent = place.agent()
    async with place.running(agent):
        agent.sampler.gpus = GivenGpus(RuntimeError("a bug"))
        await until(lambda: agent.health.failed_cycles > 1)
        assert agent.health.last_error == "RuntimeError: a bug"
        agent.sampler.gpus = GivenGpus((gpu(0), gpu(1)))
        await until(lambda: place.reports[-1]["gpus"])
        assert [row["index"] for row in place.reports[-1]["gpus"]] == [0, 1]


async def test_a_cycle_that_fails_sweeps_the_socket_all_the_same(place, monkeypatch):
    agent, swept = place.agent(), []
    monkeypatch.setattr(agent.job_socket, "sweep", lambda: swept.append(agent.health.failed_cycles))
    async with place.running(agent):
        agent.sampler.gpus = GivenGpus(RuntimeError("broken"))
        await until(lambda: agent.health.failed_cycles > 2 and swept[-1] > 1)


@pytest.mark.parametrize("name", ["reporter", "watchdog", "saves"])
async def test_a_task_beside_the_cycle_that_is_killed_once_is_begun_again(place, name, monkeypatch):
    monkeypatch.setattr("policies.serving.runtime.tasks.supervise.FIRST_PAUSE_S", 0.01)
    agent = place.agent()
    begun = []
    running = agent.tasks.running

    def killed_once(task, work, **more):
        async def first_killed():
            begun.append(task)
            if begun.count(task) == 1 and task == name:
                raise ZeroDivisionError("killed by the test")
            await work()

        return running(task, first_killed, **more)

    agent.tasks.running = killed_once
    async with place.running(agent):
        await until(lambda: begun.count(name) == 2)
        assert agent.tasks.failures == {"reporter": 0, "watchdog": 0, "saves": 0} | {name: 1}


async def test_required_gpus_that_are_not_there_are_an_error(place):
    agent = place.agent(gpus="required")
    agent.sampler.gpus = GivenGpus(None)
    agent.sampler.gpus.absent = "no library"
    with pytest.raises(TelemetryError, match=r'no library; install the NVIDIA driver, or set gpus = "automatic"'):
        async with place.running(agent):
            pass
    assert not agent.job_socket.path.exists()


async def test_a_second_agent_is_refused_and_the_first_goes_on(place):
    agent = place.agent()
    async with place.running(agent):
        with pytest.raises(SocketError, match="another agent"):
            await place.agent().run(FileReporter(place.folder / "other"), Notifier({}))
        assert await Job(agent.job_socket.path).hear()


async def test_profiles_on_request(place):
    agent = place.agent()
    async with place.running(agent):
        ranks = [Job(agent.job_socket.path) for _ in range(2)]
        for number, rank in enumerate(ranks):
            await rank.hear()
            rank.say("hello", rank=number, pid=100 + number)
        await until(lambda: len(agent.jobs.connected(7)) == 2)
        assert agent.request_profile(7, 10) == "job 7: none of its processes on this node has made an optimizer step"
        assert "must be 1 to 1000" in agent.request_profile(7, 0)
        for rank in ranks:
            rank.say("steps")
        await until(lambda: len(agent.jobs.stepping(7)) == 2)
        assert agent.request_profile(7, 10) == ""
        assert [(await rank.hear())["steps"] for rank in ranks] == [10, 10]


async def test_a_report_goes_to_the_process_that_writes_one(place):
    agent = place.agent()
    async with place.running(agent):
        writer, other = (Job(agent.job_socket.path) for _ in range(2))
        for number, rank in enumerate((writer, other)):
            await rank.hear()
            rank.say("hello", rank=number, pid=100 + number, restart=1, **({"report": True} if rank is writer else {}))
        await until(lambda: len(agent.jobs.connected(7)) == 2)
        (row,) = agent.jobs.rows(time.monotonic_ns())
        assert row.report_wanted
        agent.give_report(7, 0, ["of an earlier run"])
        agent.give_report(8, 1, ["of another job"])
        agent.give_report(7, 1, ["the job waited 5 min", "x" * 500, *["more"] * 20])
        lines = (await writer.hear())["lines"]
        assert (lines[0], len(lines[1]), len(lines)) == ("the job waited 5 min", 400, 8)
        agent.request_profile(7, 10)
        other.say("steps")
        await until(lambda: agent.jobs.stepping(7))
        assert agent.request_profile(7, 10) == ""
        assert (await other.hear())["type"] == "profile"
        writer.close()
        await until(lambda: not agent.jobs.reporting(7, 1))


async def test_settings_of_the_controller(place):
    agent = place.agent()
    async with place.running(agent):
        agent.apply_settings(report_interval_s=0.2, profile_steps=5)
        assert (await Job(agent.job_socket.path).hear())["profile_steps"] == 5
        agent.apply_settings(report_interval_s=0.0)
        agent.apply_settings(profile_steps=10**9)
        assert (await Job(agent.job_socket.path).hear())["profile_steps"] == 5
        agent.apply_settings(profile_steps=0)
        assert (await Job(agent.job_socket.path).hear())["profile_steps"] == 0
        assert agent.settings.report_interval_s == 0.2


async def test_a_process_outside_any_job_is_refused_on_this_machine(place):
    """Use the real identification: pytest does not run in a Slurm job."""
    if "SLURM_JOB_ID" in os.environ:
        pytest.skip("these tests run in a Slurm job")
    agent = place.agent()
    agent.job_socket._identify = build_agent(agent.settings).job_socket._identify
    async with place.running(agent):
        assert await Job(agent.job_socket.path).hear() is None
        assert agent.job_socket.counters().refused == 1


def test_the_limit_of_open_files_is_raised_as_far_as_allowed():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        _raise_file_limit(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        _raise_file_limit(200)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
