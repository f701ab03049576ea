"""The Admin service over its real sockets: its answers, and the users who may ask."""

import asyncio
import grp
import json
import os
import pwd
import socket
import stat
import sys
import tempfile
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import grpc
import grpc.aio
import pytest

from controller.admin import messages
from controller.admin.front import uid_of
from controller.admin.metrics.metered_client import MeteredClient
from controller.admin.serve import serve_admin
from controller.admin.sockets import bind, group_id
from controller.base.apart import LeftOut
from controller.base.audit import AuditLog
from controller.base.clock import RealClock
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.base.lease import Lease, write_lease
from controller.base.watchdog_mark import MARK_FILE, SILENT_AFTER_S, mark_check
from controller.cycle.decision.decider import Decider
from controller.daemon.daemon import Controller
from controller.daemon.pacing.wake_pipe import WakePipe
from controller.slurm.embedded import EmbeddedSlurm, Submission, sbatch_request
from controller.state.journal import Journal
from policies.api import load_policy
from policies.serving.client import PolicyClient
from policies.serving.runtime.sdnotify import Notifier
from protos.headway.v1 import admin_pb2 as pb
from protos.headway.v1 import admin_pb2_grpc
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.controller_world import world_in

DEADLINE_S = 60.0


@pytest.fixture
def folder():
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@asynccontextmanager
async def asking(path):
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        yield admin_pb2_grpc.AdminStub(channel)


@asynccontextmanager
async def served(world, group="", audit=None):
    """Stubs of the two sockets: (admin, status)."""
    async with (
        serve_admin(world, world.folder, group, audit=audit),
        asking(world.folder / "admin.sock") as admin,
        asking(world.folder / "status.sock") as status,
    ):
        yield admin, status


async def refused(call):
    """Code and text of a call that fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# --- what it answers


async def test_status_shows_controller_policy_jobs_and_nodes(folder):
    # given a cluster with a job that runs, one that waits and one that its user holds; the policy server is away
    world = world_in(folder)
    world.endpoint.away = True
    write_lease(world.settings.lease_path, Lease(int(world.clock.now()), 30.0, ("dl",), 0, 0))
    world.sbatch(gpus_per_node=8, nodes=4)
    world.sbatch(gpus_per_node=8)
    world.sbatch(gpus_per_node=8, hold=True)
    await world.go_on(2)
    world.slurm.node_drain("n1")
    await world.turn()
    # when an operator asks
    async with served(world) as (admin, status):
        found = await admin.GetStatus(pb.GetStatusRequest())
        # then
        assert found == await status.GetStatus(pb.GetStatusRequest())
    assert (found.jobs_waiting, found.jobs_running, found.jobs_ineligible, found.jobs_starting) == (1, 1, 1, 0)
    assert (found.gpus_used, found.gpus_total, found.nodes_available, found.nodes_total) == (32, 32, 3, 4)
    assert (found.slurm_version, found.slurm_client, list(found.partitions)) == ("22.05.8", "embedded", ["dl"])
    first = found.nodes[0]
    assert (first.name, first.gpus, first.gpus_used, first.available) == ("n1", 8, 8, False)
    assert "DRAIN" in first.state
    assert (found.policy.serving, found.policy.fallback, found.policy.address) == (False, "fifo", "unix:///fake")
    assert "nobody listens" in found.policy.last_error
    assert found.fallbacks == found.decisions > 0
    assert found.lease_time_s == pytest.approx(world.clock.now(), abs=5)
    assert not found.lease_stale
    assert found.plan_s == world.health.plan_s
    assert "nobody listens" in found.last_error


async def test_status_shows_how_many_errors_left_something_out_and_where(folder, monkeypatch):
    world, left_out = world_in(folder), LeftOut()
    monkeypatch.setattr(messages, "LEFT_OUT", left_out)
    async with served(world) as (_, status):
        assert not (await status.GetStatus(pb.GetStatusRequest())).left_out
        for part in ("starts", "roles of jobs", "starts"):
            left_out.note(part, "7", ZeroDivisionError())
        found = await status.GetStatus(pb.GetStatusRequest())
    assert [(one.part, one.errors) for one in found.left_out] == [("roles of jobs", 1), ("starts", 2)]


async def test_status_shows_the_last_check_of_the_watchdog(folder):
    world = world_in(folder)
    async with served(world) as (_, status):
        # before its first check, it is not yet missed
        found = await status.GetStatus(pb.GetStatusRequest())
        assert (found.watchdog_time_s, found.watchdog_silent) == (0.0, False)
        # when it checks
        mark_check(world.settings.runtime_dir)
        found = await status.GetStatus(pb.GetStatusRequest())
        assert found.watchdog_time_s > 0
        # when its timer has been stopped for a while
        await world.clock.advance(SILENT_AFTER_S + 1)
        checked_s = world.clock.now() - SILENT_AFTER_S - 1
        os.utime(world.settings.runtime_dir / MARK_FILE, (checked_s, checked_s))
        found = await status.GetStatus(pb.GetStatusRequest())
        assert (found.watchdog_time_s, found.watchdog_silent) == (pytest.approx(checked_s), True)


async def test_an_embedded_slurm_misses_no_watchdog(folder):
    world = world_in(folder)
    world.settings = world.settings.model_copy(update={"slurm_client": "embedded"})
    await world.clock.advance(SILENT_AFTER_S + 1)
    mark_check(world.settings.runtime_dir)
    async with served(world) as (_, status):
        found = await status.GetStatus(pb.GetStatusRequest())
    assert (found.watchdog_time_s, found.watchdog_silent) == (0.0, False)


async def test_a_node_in_maintenance_is_not_available_to_users(folder):
    world = world_in(folder)
    world.slurm.reserve("upkeep", ("n2",), world.clock.now(), world.clock.now() + 600.0, maintenance=True)
    world.slurm.reserve("course", ("n3",), world.clock.now(), world.clock.now() + 600.0)
    await world.turn()
    async with served(world) as (admin, _):
        found = await admin.GetStatus(pb.GetStatusRequest())
    assert [(node.name, node.available) for node in found.nodes] == [
        ("n1", True), ("n2", False), ("n3", True), ("n4", True),
    ]  # fmt: skip
    assert found.nodes_available == 3
    # but policies may use it, for jobs of that reservation
    assert world.last.observation.state.nodes.available.all()


async def test_before_the_first_reading_there_is_a_status_and_no_queue(folder):
    world = world_in(folder)
    world.health.last_error = "slurmctld did not answer"
    async with served(world) as (admin, status):
        found = await status.GetStatus(pb.GetStatusRequest())
        assert (found.snapshot_time_s, found.nodes_total, found.lease_stale) == (0.0, 0, True)
        code, text = await refused(admin.GetQueue(pb.GetQueueRequest()))
        assert (code, text) == (
            grpc.StatusCode.UNAVAILABLE,
            "the controller is running, but has not read the cluster yet: slurmctld did not answer",
        )
        assert (await refused(status.Why(pb.WhyRequest(job_id="1"))))[0] is grpc.StatusCode.UNAVAILABLE


async def test_the_queue_has_waiting_jobs_first_in_the_policys_order(folder):
    world = world_in(folder, policy="sjf")
    world.endpoint.away = True
    world.sbatch(gpus_per_node=8, nodes=4, time_limit_s=60.0)
    await world.go_on(2)
    slow = world.sbatch(gpus_per_node=8, time_limit_s=9000.0, user="bob", name="slow")
    quick = world.sbatch(gpus_per_node=4, time_limit_s=600.0)
    held = world.sbatch(gpus_per_node=2, hold=True)
    await world.turn()
    async with served(world) as (_, status):
        found = (await status.GetQueue(pb.GetQueueRequest())).entries
        assert found == (await status.GetQueue(pb.GetQueueRequest())).entries
    assert [(e.job_id, e.state) for e in found] == [
        (quick.job_id, "waiting"),
        (slow.job_id, "waiting"),
        ("1", "running"),
        (held.job_id, "ineligible"),
    ]
    assert (found[1].user, found[1].name, found[1].partition, found[1].num_gpus) == ("bob", "slow", "dl", 8)
    assert found[1].why.startswith("needs 8 GPUs on one node; no GPU is free")
    assert found[2].placement == "n1:8,n2:8,n3:8,n4:8"


async def test_a_listing_is_made_again_after_every_cycle(folder):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (_, status):
        assert not (await status.GetQueue(pb.GetQueueRequest())).entries
        world.sbatch(gpus_per_node=8)
        await world.turn()
        assert len((await status.GetQueue(pb.GetQueueRequest())).entries) == 1


async def test_why_shows_past_decisions_too(folder):
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(gpus_per_node=8)
    await world.go_on(2)
    async with served(world) as (_, status):
        found = await status.Why(pb.WhyRequest(job_id=key.job_id))
    assert (found.job_id, found.state) == (key.job_id, "running")
    assert found.sentence.startswith("Runs on n1:8 since ")
    (decision,) = found.decisions
    assert (decision.policy, decision.placement) == ("fallback:fifo", "n1:8")
    assert decision.snapshot_digest
    assert found.facts["num_gpus"] == "8"


async def test_why_of_a_job_given_to_slurm_has_the_reason(folder):
    world = world_in(folder)
    world.sbatch(gpus_per_node=8, nodes=4, duration_s=500.0)
    await world.go_on(2)
    key = world.sbatch(gpus_per_node=8, features="[a|b]")
    await world.turn()
    async with served(world) as (_, status):
        found = await status.Why(pb.WhyRequest(job_id=key.job_id))
    assert found.state == "yielded"
    assert "--constraint=[a|b]" in found.sentence


async def test_why_keeps_the_reason_for_which_slurm_placed_a_job(folder):
    # given a job that only Slurm can place, and that Slurm has started
    world = world_in(folder)
    key = world.sbatch(60.0, gpus_per_node=8, free_choice_only=True)
    await world.go_on(10)
    async with served(world) as (_, status):
        running = await status.Why(pb.WhyRequest(job_id=key.job_id))
        await world.go_on(70)
        ended = await status.Why(pb.WhyRequest(job_id=key.job_id))
        await world.clock.advance(1000.0)
        await world.turn()
        forgotten = await status.Why(pb.WhyRequest(job_id=key.job_id))
    assert running.sentence.startswith("Runs on n1:8 since ")
    assert "placed by Slurm itself: " in running.sentence
    for found in (running, ended, forgotten):
        assert "BadConstraints" in found.sentence
    assert (ended.state, forgotten.state) == ("ended", "ended")
    assert "Slurm placed it, not Headway: " in ended.sentence
    assert world.last.observation.snapshot.jobs == ()


async def test_why_finds_jobs_that_slurm_has_forgotten(folder):
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(10.0, gpus_per_node=8)
    await world.go_on(20)
    await world.clock.advance(1000.0)
    await world.turn()
    assert world.last.observation.snapshot.jobs == ()
    async with served(world) as (_, status):
        found = await status.Why(pb.WhyRequest(job_id=key.job_id))
    assert found.sentence.startswith("Ended (COMPLETED) ")
    assert len(found.decisions) == 1


async def test_why_warns_when_its_snapshot_is_old(folder):
    world = world_in(folder)
    key = world.sbatch(gpus_per_node=8)
    await world.turn()
    await world.clock.advance(50.0)
    world.health.slurm_away = 3
    async with served(world) as (_, status):
        found = await status.Why(pb.WhyRequest(job_id=key.job_id))
    assert found.sentence.endswith(" As of 50 s ago: Slurm has not answered since.")


@pytest.mark.parametrize(
    ("job_id", "code"),
    [
        ("99", grpc.StatusCode.NOT_FOUND),
        ("", grpc.StatusCode.INVALID_ARGUMENT),
        ("12_", grpc.StatusCode.INVALID_ARGUMENT),
        ("٣", grpc.StatusCode.INVALID_ARGUMENT),
        ("1;drop", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_why_of_what_is_no_job(folder, job_id, code):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (_, status):
        assert (await refused(status.Why(pb.WhyRequest(job_id=job_id))))[0] is code


# --- the policy


async def test_a_fit_policy_takes_over(folder):
    world = world_in(folder)
    world.new_endpoints["unix:///new"] = FakeEndpoint(address="unix:///new")
    async with served(world) as (admin, status):
        found = await admin.UsePolicy(pb.UsePolicyRequest(address="unix:///new"))
        assert (found.name, found.address, found.serving) == ("fake", "unix:///new", True)
        assert found == await status.GetPolicy(pb.GetPolicyRequest())
    assert world.endpoint.closed


async def test_a_policy_that_is_not_fit_changes_nothing(folder):
    world = world_in(folder)
    world.sbatch(gpus_per_node=1)
    await world.turn()
    world.new_endpoints["sick"] = FakeEndpoint(sick=True)
    async with served(world) as (admin, _):
        before = await admin.GetPolicy(pb.GetPolicyRequest())
        for address in ("sick", "nowhere"):
            code, text = await refused(admin.UsePolicy(pb.UsePolicyRequest(address=address)))
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert text.endswith("; the policy stays as it was")
        assert await admin.GetPolicy(pb.GetPolicyRequest()) == before


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_the_audit_log_names_the_user_the_request_and_its_outcome(folder):
    # given a controller with an audit log
    world = world_in(folder)
    world.endpoint.away = True
    new = FakeEndpoint(address="unix:///new")
    world.new_endpoints |= {"unix:///new": new}
    async with served(world, audit=AuditLog(world.clock, folder / "audit.jsonl")) as (admin, status):
        # when policies and preemptions are requested, with and without success
        await admin.UsePolicy(pb.UsePolicyRequest(address="unix:///new"))
        await refused(admin.UsePolicy(pb.UsePolicyRequest(address="nowhere")))
        new.away = True
        key = world.sbatch(gpus_per_node=8, user="ann")
        await world.go_on(2)
        await refused(admin.Preempt(pb.PreemptRequest(job_id=key.job_id, gpus=4, avoid=["n9"])))
        await admin.Preempt(pb.PreemptRequest(job_id=key.job_id, force=True))
        await refused(status.Preempt(pb.PreemptRequest(job_id="x" * 500, away=True)))
    # then each is a line, with the user as the kernel knows it
    name = pwd.getpwuid(os.getuid()).pw_name
    found = lines_of(folder / "audit.jsonl")
    assert {(line["uid"], line["user"]) for line in found} == {(os.getuid(), name)}
    assert [(line["action"], line["job_id"], line["job_user"], line["details"]) for line in found] == [
        ("policy-use", "", "", {"address": "unix:///new"}),
        ("policy-use", "", "", {"address": "nowhere"}),
        ("resize", key.job_id, "ann", {"avoid": ["n9"], "gpus": 4}),
        ("preempt", key.job_id, "ann", {"force": True}),
        ("move", "x" * 40, "", {"away": True}),
    ]
    outcomes = [line["outcome"] for line in found]
    assert outcomes[0] == "done: policy fake decides"
    assert outcomes[1].startswith("refused (policy-unusable): nowhere: unreachable")
    assert outcomes[2].startswith("refused (invalid-preemption): no managed node is called n9")
    assert outcomes[3] == "begun as preemption 1"
    assert outcomes[4].startswith("refused (invalid-job-id): ")
    assert mode(folder / "audit.jsonl") == 0o640


async def test_a_full_disk_stops_no_request_and_is_in_the_status(folder):
    world = world_in(folder)
    world.new_endpoints |= {"unix:///new": FakeEndpoint(address="unix:///new")}
    async with served(world, audit=AuditLog(world.clock, folder / "nowhere" / "audit.jsonl")) as (admin, _):
        assert not (await admin.GetStatus(pb.GetStatusRequest())).troubles
        assert (await admin.UsePolicy(pb.UsePolicyRequest(address="unix:///new"))).serving
        (trouble,) = (await admin.GetStatus(pb.GetStatusRequest())).troubles
        assert trouble.endswith("audit.jsonl: No such file or directory; requests are in the log only")
        (folder / "nowhere").mkdir()
        await admin.UsePolicy(pb.UsePolicyRequest(address="unix:///new"))
        assert not (await admin.GetStatus(pb.GetStatusRequest())).troubles


async def test_status_sock_changes_nothing_for_any_caller(folder):
    world = world_in(folder)
    world.new_endpoints["unix:///new"] = FakeEndpoint(address="unix:///new")
    async with served(world) as (_, status):
        code, text = await refused(status.UsePolicy(pb.UsePolicyRequest(address="unix:///new")))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "only root and the controller's user" in text
    assert world.decider.address == "unix:///fake"


# --- events


async def test_events_come_as_they_happen(folder):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (_, status):
        call = status.WatchEvents(pb.WatchEventsRequest())
        await asyncio.wait_for(call.initial_metadata(), DEADLINE_S)
        world.events.add("placed", "7", "n1:8 by srtf")
        event = await asyncio.wait_for(call.read(), DEADLINE_S)
        assert (event.kind, event.job_id, event.text) == ("placed", "7", "n1:8 by srtf")
        call.cancel()


async def test_events_of_a_job_name_its_user_from_the_first_on(folder):
    world = world_in(folder)
    world.sbatch(10, gpus_per_node=1, user="ann")
    await world.go_on(30)
    async with served(world) as (_, status):
        call = status.WatchEvents(pb.WatchEventsRequest(since_s=0, past_only=True))
        async with asyncio.timeout(DEADLINE_S):
            found = [(event.kind, event.user) async for event in call if event.job_id]
    assert {kind for kind, _ in found} >= {"placed", "started", "ended"}
    assert {user for _, user in found} == {"ann"}


async def events_in(call):
    """Texts of the events of a call that ends."""
    async with asyncio.timeout(DEADLINE_S):
        return [event.text async for event in call]


async def test_past_events_come_first_and_an_end_is_an_end(folder):
    world = world_in(folder)
    await world.turn()
    begun_s = world.clock.now()
    for number in range(3):
        world.events.add("placed", "7" if number else "8", f"event {number}")
        await world.clock.advance(10.0)
    async with served(world) as (_, status):
        ask = pb.WatchEventsRequest
        assert await events_in(status.WatchEvents(ask(since_s=0, past_only=True))) == ["event 0", "event 1", "event 2"]
        assert await events_in(status.WatchEvents(ask(since_s=0, job_id="8", past_only=True))) == ["event 0"]
        assert await events_in(status.WatchEvents(ask(since_s=begun_s + 5, until_s=begun_s + 15))) == ["event 1"]
        assert await events_in(status.WatchEvents(ask(past_only=True))) == []
        # past and coming events, each once
        call = status.WatchEvents(ask(since_s=begun_s + 15, job_id="7"))
        await asyncio.wait_for(call.initial_metadata(), DEADLINE_S)
        world.events.add("placed", "9", "of another job")
        world.events.add("placed", "7", "event 3")
        texts = [(await asyncio.wait_for(call.read(), DEADLINE_S)).text for _ in range(2)]
        assert texts == ["event 2", "event 3"]
        call.cancel()
        code, _ = await refused(status.WatchEvents(ask(job_id="x")).read())
        assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_events_end_at_the_time_that_was_given(folder):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (_, status):
        call = status.WatchEvents(pb.WatchEventsRequest(until_s=world.clock.now() + 1.0))
        await asyncio.wait_for(call.initial_metadata(), DEADLINE_S)
        world.events.add("placed", "7", "in time")
        assert await events_in(call) == ["in time"]
    assert world.events._listeners == set()


async def test_watchers_are_let_go_when_they_leave_and_when_the_controller_ends(folder):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (_, status):
        leaver, stayer = status.WatchEvents(pb.WatchEventsRequest()), status.WatchEvents(pb.WatchEventsRequest())
        for call in (leaver, stayer):
            await asyncio.wait_for(call.initial_metadata(), DEADLINE_S)
        leaver.cancel()
        async with asyncio.timeout(DEADLINE_S):
            while len(world.events._listeners) != 1:
                await asyncio.sleep(0.01)
    assert world.events._listeners == set()


async def test_so_many_watches_has_one_user_and_no_more(folder):
    world = world_in(folder)
    await world.turn()
    async with served(world) as (admin, status):
        calls = [status.WatchEvents(pb.WatchEventsRequest()) for _ in range(8)]
        for call in calls:
            await asyncio.wait_for(call.initial_metadata(), DEADLINE_S)
        assert (await refused(status.WatchEvents(pb.WatchEventsRequest()).read()))[
            0
        ] is grpc.StatusCode.RESOURCE_EXHAUSTED
        # operators still can
        await asyncio.wait_for(admin.WatchEvents(pb.WatchEventsRequest()).initial_metadata(), DEADLINE_S)
        assert (await status.GetStatus(pb.GetStatusRequest())).version


AS_USER = """
import os, socket, sys
sys.path[:0] = [{root!r}]
import grpc
from protos.headway.v1 import admin_pb2 as pb, admin_pb2_grpc
os.setgroups([]), os.setgid({uid}), os.setuid({uid})
idle = []
while len(idle) < {idle}:
    probe = socket.socket(socket.AF_UNIX)
    probe.connect({path!r})
    idle.append(probe)
with grpc.insecure_channel("unix:" + {path!r}) as channel:
    stub = admin_pb2_grpc.AdminStub(channel)
    calls = [stub.WatchEvents(pb.WatchEventsRequest()) for _ in range({watches})]
    for call in calls:
        try:
            call.initial_metadata()
            print("watches" if call.is_active() else call.code().name, flush=True)
        except grpc.RpcError as error:
            print(error.code().name, flush=True)
    print("done", flush=True)
    sys.stdin.read()
"""


@asynccontextmanager
async def user(uid, path, *, idle=0, watches=0):
    """Open `idle` connections as user `uid`, then start `watches` watches over one more; yield the lines that the user reads."""
    root = str(Path(__file__).parents[4])
    script = AS_USER.format(root=root, uid=uid, path=str(path), idle=idle, watches=watches)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdin=PIPE, stdout=PIPE)
    said = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while (line := (await process.stdout.readline()).decode().strip()) != "done":
                assert line, "it ended"
                said.append(line)
        yield said
    finally:
        process.stdin.close()
        process.kill()
        await process.wait()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as other users")
async def test_no_user_takes_the_places_of_the_others(folder):
    folder.chmod(0o755)
    world = world_in(folder)
    world.slurm_says(PrivateData="none")
    await world.turn()
    async with served(world) as (_, status):
        path = folder / "status.sock"
        # given one who opens more connections than all may have
        async with user(1001, path, idle=300), user(1002, path, watches=12) as watched:
            # and one who watches more often than one may
            assert sorted(watched) == ["RESOURCE_EXHAUSTED"] * 4 + ["watches"] * 8
            # then others are served, and may watch
            assert (await status.GetStatus(pb.GetStatusRequest(), timeout=DEADLINE_S)).version
            async with user(1003, path, watches=2) as others:
                assert others == ["watches"] * 2
        # and who has gone leaves room
        async with user(1001, path, watches=1) as again:
            assert again == ["watches"]


async def test_a_user_without_a_front_is_none():
    assert uid_of("unix-abstract:headway-uid-1000-0011aabb") == 1000
    assert uid_of("unix:") is None


# --- who may ask


async def test_admin_sock_is_for_the_owner_and_status_sock_for_every_user(folder):
    world = world_in(folder)
    async with served(world):
        assert mode(folder / "admin.sock") == 0o600
        assert mode(folder / "status.sock") == 0o666
    assert not (folder / "admin.sock").exists()
    assert not (folder / "status.sock").exists()


async def test_with_a_group_status_sock_is_for_that_group(folder):
    # given a group that this process may give a file to: root may any, others their own
    gid = os.getgid()
    name = grp.getgrgid(gid).gr_name
    world = world_in(folder)
    async with served(world, name):
        assert mode(folder / "status.sock") == 0o660
        assert (folder / "status.sock").stat().st_gid == gid
        assert mode(folder / "admin.sock") == 0o600


@pytest.mark.parametrize("private", ["jobs", "accounts,jobs", "all", "Jobs"])
async def test_where_slurm_keeps_jobs_private_users_see_none_of_others(folder, private):
    world = world_in(folder)
    world.sbatch(gpus_per_node=8, user="ann")
    await world.turn()
    world.slurm_says(PrivateData=private)
    async with served(world) as (admin, status):
        for call in (
            status.Why(pb.WhyRequest(job_id="1")),
            status.WatchEvents(pb.WatchEventsRequest()).read(),
        ):
            code, text = await refused(call)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert "admin_group" in text
        assert (await status.GetStatus(pb.GetStatusRequest())).nodes_total == 4
        assert not (await status.GetQueue(pb.GetQueueRequest())).entries
        assert len((await admin.GetQueue(pb.GetQueueRequest())).entries) == 1


async def test_private_jobs_are_shown_to_the_group_that_the_operator_chose(folder):
    world = world_in(folder)
    await world.turn()
    world.slurm_says(PrivateData="jobs")
    async with served(world, grp.getgrgid(os.getgid()).gr_name) as (_, status):
        await status.GetQueue(pb.GetQueueRequest())


# --- the sockets themselves


async def test_a_socket_that_a_dead_controller_left_is_replaced(folder):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "admin.sock"))
    left.close()
    async with served(world_in(folder)) as (admin, _):
        assert (await admin.GetStatus(pb.GetStatusRequest())).version


async def test_a_second_controller_is_refused_and_the_first_continues(folder):
    world = world_in(folder)
    async with served(world) as (admin, _):
        with pytest.raises(ConfigurationError, match=r"admin\.sock: another server listens there.*another controller"):
            async with serve_admin(world_in(folder), folder, ""):
                pass
        assert (await admin.GetStatus(pb.GetStatusRequest())).version


async def test_what_is_no_socket_is_left_alone(folder):
    (folder / "status.sock").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"status\.sock: there is a file of that name that is not a socket"):
        async with serve_admin(world_in(folder), folder, ""):
            pass
    assert (folder / "status.sock").read_text() == "mine"
    assert not (folder / "admin.sock").exists()


def test_errors_of_sockets_name_the_remedy(folder):
    with pytest.raises(ConfigurationError, match=r"set runtime_dir"):
        bind(folder / ("x" * 120), 0o600, None, lambda _: None)
    with pytest.raises(ConfigurationError, match=r"there is no folder .*nowhere; make it"):
        bind(folder / "nowhere" / "admin.sock", 0o600, None, lambda _: None)
    with pytest.raises(ConfigurationError, match=r"admin_group: there is no group 'no-such-group'.*groupadd"):
        group_id("no-such-group")
    assert group_id("") is None


def test_no_user_can_connect_before_the_mode_is_set(folder):
    seen = []

    def listen(address):
        path = address.removeprefix("unix:")
        with closing(socket.socket(socket.AF_UNIX)) as server:
            server.bind(path)
        seen.append(mode(Path(path)))

    before = os.umask(0)
    try:
        bind(folder / "s.sock", 0o666, None, listen)
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert mode(folder / "s.sock") == 0o666


# --- with the controller itself


async def test_a_real_controller_answers_while_it_works(folder):
    # given the daemon beside an embedded Slurm on the real clock
    clock = RealClock()
    settings = ControllerSettings(partitions=("dl",), runtime_dir=folder, state_dir=folder / "state")
    slurm = EmbeddedSlurm(clock=clock)
    with closing(Journal(settings.journal_path)) as journal, closing(WakePipe(settings.wake_path)) as wake:
        decider = Decider(FakeEndpoint(away=True), load_policy("fifo"), 0.5, clock)
        controller = Controller(settings, MeteredClient(slurm.client, clock), decider, journal, clock, PolicyClient)
        async with serve_admin(controller, folder, ""), asking(folder / "status.sock") as status:
            key = slurm.submit(Submission(request=sbatch_request(gpus_per_node=8), duration_s=100.0))
            running = asyncio.create_task(controller.run(wake, Notifier({})))
            # when somebody asks until the job runs
            state = ""
            async with asyncio.timeout(DEADLINE_S):
                while state != "running":
                    await asyncio.sleep(0.05)
                    with suppress(grpc.aio.AioRpcError):
                        state = (await status.Why(pb.WhyRequest(job_id=key.job_id))).state
            # then everything tells of it
            assert (await status.GetStatus(pb.GetStatusRequest())).gpus_used == 8
            entries = (await status.GetQueue(pb.GetQueueRequest())).entries
            assert [(entry.job_id, entry.placement) for entry in entries] == [(key.job_id, "n1:8")]
            controller.stop()
            await asyncio.wait_for(running, DEADLINE_S)
