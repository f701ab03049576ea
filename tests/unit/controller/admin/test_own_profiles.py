"""Profiles that users request of jobs of their own, and measurements that they see."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from headway_client import AsyncClient, NotPermittedError, Reason, RefusedError
from typer.testing import CliRunner

from controller.agents.profile_requests import ProfileRequests
from controller.cli.app import app
from protos.headway.v1 import admin_pb2, agent_pb2
from tests.unit.controller.worlds.as_user import OTHER, USER, call
from tests.unit.controller.worlds.measured import measured_world, share_nodes
from tests.unit.controller.worlds.preempted import no, preempted_world, silent
from tests.unit.policies.hanging import HangingService

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can call as other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


async def test_a_user_has_their_own_job_profiled_by_its_agents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProfileRequests.request, "__defaults__", (30.0,))
    settings = {"user_changes_per_hour": 2, "agents_profile_steps": 12}
    async with preempted_world(folder, settings_changes=settings) as cluster:
        job = await cluster.running(user=USER)
        # when its user and another user request a profile
        ((_, found),) = await call(folder, USER, ("request_profile", {"job_id": 1}))
        ((reason, _),) = await call(folder, OTHER, ("request_profile", {"job_id": 1}))
        # then the agents of its nodes have one request, for that run
        assert (found["steps"], found["nodes"], found["user_changes_left"]) == (12, ["n1", "n2"], 1)
        assert reason == "not-your-job"
        (asked,) = cluster.agents["n1"].asked("profile")
        assert (asked.job.job_id, asked.job.restart, asked.profile.steps) == (job.raw_id, 0, 12)
        assert not cluster.agents["n3"].commands
        # and the command line takes the job's id at once
        arguments = ["profile", "1", "--steps", "7", "--socket", str(folder / "admin.sock")]
        shown = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert shown.exit_code == 0, shown.output
        assert shown.output.startswith("The next 7 steps of job 1 are profiled on n1, n2.\n`headway profile show 1`")


def until_answer_of(node: str, said_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for answers is up when this node has answered, however late; problems name that many seconds."""
    limits: list[asyncio.Timeout] = []
    on_report = ProfileRequests.on_report

    def timeout(_within_s: float) -> asyncio.Timeout:
        limits.append(asyncio.timeout(60))
        return limits[-1]

    def note(requests: ProfileRequests, of: str, report: agent_pb2.AgentReport) -> None:
        on_report(requests, of, report)
        if of == node and report.WhichOneof("kind") == "answer":
            limits[-1].reschedule(asyncio.get_running_loop().time())

    monkeypatch.setattr(ProfileRequests.request, "__defaults__", (said_s,))
    monkeypatch.setattr(ProfileRequests, "on_report", note)
    monkeypatch.setattr(
        "controller.agents.profile_requests.asyncio", SimpleNamespace(Event=asyncio.Event, timeout=timeout)
    )


async def test_what_an_agent_cannot_do_is_said_and_costs_nothing_if_none_can(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_answer_of("n1", 0.3, monkeypatch)
    async with preempted_world(folder, nodes=("n1", "n2"), settings_changes={"user_changes_per_hour": 1}) as cluster:
        await cluster.running(nodes=3, user=USER)
        refusing, other = cluster.agents["n1"], cluster.agents["n2"]
        refusing.answers = lambda _: no("no process has made a step", agent_pb2.ANSWER_REASON_REFUSED)
        other.answers = silent
        ((reason, text),) = await call(folder, USER, ("request_profile", {"job_id": 1}))
        assert reason == "not-profilable"
        assert text == (
            "job 1 cannot be profiled now: n1: no process has made a step; n2: its agent has not answered within 0.3 s; n3: its "
            "agent is not connected"
        )
        refusing.answers = refusing.save
        ((_, found),) = await call(folder, USER, ("request_profile", {"job_id": 1}))
        assert (found["nodes"], len(found["problems"]), found["user_changes_left"]) == (["n1"], 2, 0)
        client = AsyncClient(folder / "admin.sock")
        for wrong in ({"job_id": 1, "steps": 0}, {"job_id": 1, "steps": 1001}):
            with pytest.raises(RefusedError) as caught:
                await client.request_profile(**wrong)
            assert caught.value.reason is Reason.NOT_PROFILABLE


async def test_measurements_have_numbers_of_users_while_the_name_service_does_not_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, _ = await share_nodes(world, fleet, (USER, OTHER))
        service, uids = HangingService(folder / "pipe"), set[int]()

        def hang(uid: int) -> str:
            uids.add(uid)
            assert threading.current_thread().name == "name-service", "neither the event loop nor the store may wait"
            return service()

        monkeypatch.setattr(pwd, "getpwuid", hang)
        client = AsyncClient(folder / "admin.sock")
        async with asyncio.timeout(120):
            while not uids:  # on a busy machine a look-up may be given up before its thread begins
                one = await client.profile(first.job_id)
                kinds = await client.profiles()
        with service.answering():
            assert (one.user, one.windows[0].gpus > 0) == ("", True)
            assert {(kind.user, kind.uid > 0) for kind in kinds.kinds} == {("", True)}


async def test_a_user_sees_the_measurements_of_their_own_jobs_without_those_beside_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, second = await share_nodes(world, fleet, (USER, OTHER))
        world.slurm_says(PrivateData="none")
        wholly = await AsyncClient(folder / "admin.sock").profile(first.job_id)
        assert [(other.job_id, other.script) for other in wholly.windows[0].beside] == [("2", "resnet.py")]
        ((_, own),) = await call(folder, USER, ("profile", {"job_id": first.job_id}))
        assert (own["steps"], own["windows"][0]["steps_per_s"]) == (wholly.to_dict()["steps"], 3.0)
        assert [(other["job_id"], other["script"], other["steps_per_s"]) for other in own["windows"][0]["beside"]] == [
            ("2", "", None)
        ]
        found = await call(folder, USER, ("profile", {"job_id": second.job_id}), ("profile", {"job_id": 99}))
        assert [reason for reason, _ in found] == ["not-your-job"] * 2
        with pytest.raises(NotPermittedError):
            await AsyncClient(folder / "status.sock").profiles()
        # and where jobs are private, the ids of others are removed too
        world.slurm_says(PrivateData="jobs")
        ((_, own),) = await call(folder, USER, ("profile", {"job_id": first.job_id}))
        assert own["now"]["beside"] == []
        assert [other["job_id"] for other in own["windows"][0]["beside"]] == [""]


class Measured:
    """Stands for the controller: it has a profile after some questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def request_profile(self, job_id: str, steps: int | None) -> admin_pb2.RequestedProfile:
        return admin_pb2.RequestedProfile(job_id=job_id, steps=steps or 20, nodes=["n1"])

    def profile_if_any(self, job_id: str) -> admin_pb2.JobMeasurements | None:
        self.left -= 1
        old = admin_pb2.StepSplit(time_s=10.0, node="n1", num_steps=20, step_s=0.3)
        new = admin_pb2.StepSplit(time_s=99.0, node="n1", num_steps=20, step_s=0.7)
        return admin_pb2.JobMeasurements(job_id=job_id, steps=[old] if self.left > 0 else [new, old])


@pytest.mark.parametrize(("questions", "within", "code"), [(3, "60", 0), (10**9, "1", 1)])
def test_wait_shows_the_profile_that_is_newer_than_the_request(
    monkeypatch: pytest.MonkeyPatch, questions: int, within: str, code: int
) -> None:
    monkeypatch.setattr("controller.cli.commands.profiles._POLL_S", 0.2)
    monkeypatch.setattr("controller.cli.commands.profiles.connected", lambda *_: nullcontext(Measured(questions)))
    found = CliRunner().invoke(app, ["profile", "12_3", "--wait", "--within", within, "--json"])
    assert found.exit_code == code, found.output
    assert ('"step_s": 0.7' in found.output) == (code == 0)
    assert ("has given no profile within 1 s" in found.output) == (code == 1)
