"""Jobs that a caller of status.sock may see, and users for whom headway-web may call."""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import headway_client
import pytest
from headway_client import AsyncClient, HeadwayError, InvalidRequestError, NotPermittedError, Reason

from controller.admin.serve import serve_admin
from controller.base.config import ControllerSettings
from controller.base.errors import ConfigurationError
from controller.base.events import LoggedEvent
from controller.cli.client import AdminClient, CallError
from controller.daemon.web_user import web_uid
from controller.slurm.model.job import JobKey
from controller.state.journal import RunRecord
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


@asynccontextmanager
async def cluster(
    folder: Path, private: str = "jobs", group: str = "", web: bool = True
) -> AsyncIterator[ControllerWorld]:
    """A running job of ann, waiting ones of bob and of this process's user; `web`: this process is headway-web."""
    world = world_in(folder)
    world.endpoint.away = True
    world.sbatch(gpus_per_node=8, nodes=4, user="ann", name="train")
    await world.go_on(2)
    world.sbatch(gpus_per_node=8, user="bob")
    world.sbatch(gpus_per_node=8, user=ME)
    await world.turn()
    world.slurm_says(PrivateData=private)
    async with serve_admin(world, folder, group, web_uid=os.getuid() if web else None):
        yield world


def client(folder: Path, user: str | None = None, socket: str = "status.sock") -> AsyncClient:
    return AsyncClient(folder / socket, user=user)


async def refusal(call: Any) -> tuple[type[HeadwayError], Reason | None]:
    with pytest.raises(HeadwayError) as caught:
        await call
    return type(caught.value), caught.value.reason


PRIVATE = (NotPermittedError, Reason.JOBS_PRIVATE)


async def test_where_jobs_are_private_the_page_shows_a_user_their_own(folder: Path) -> None:
    async with cluster(folder) as world:
        bob = client(folder, "bob")
        # when bob looks at the page
        (own,) = (await bob.queue()).entries
        assert (own.job_id, own.user, own.waits_for) == ("2", "bob", "for GPUs, in the policy's order")
        assert (await bob.why(2)).state == "waiting"
        assert (await bob.report(2)).user == "bob"
        # then jobs of others are refused, whether or not they exist, and nodes are no secret
        for job_id in (1, 3, 99):
            assert await refusal(bob.why(job_id)) == PRIVATE
            assert await refusal(bob.report(job_id)) == PRIVATE
        assert (await bob.status()).nodes_total == 4
        # and events are those of one job of his
        world.events.add("advice", "2", "waits for jobs 1 and 3")
        assert [event.text async for event in bob.events(past_only=True, job_id=2)] == ["waits for other jobs"]
        assert await refusal(bob.events(past_only=True, job_id=1).open()) == PRIVATE
        assert await refusal(bob.events(past_only=True).open()) == PRIVATE
        # and preemptions too
        job = world.last.observation.jobs[world.last.observation.snapshot.jobs[0].key]  # type: ignore[union-attr]
        world.preemptions.begin(job, Cause.OPERATOR, "to make room for job 2", force=True)
        assert (await bob.preemptions()).preemptions == ()
        (row,) = (await client(folder, "ann").preemptions()).preemptions
        assert (row.job_id, row.why) == ("1", "to make room for another job")


async def test_without_private_jobs_the_page_shows_every_job_to_every_user(folder: Path) -> None:
    async with cluster(folder, private="none"):
        assert len((await client(folder, "bob").queue()).entries) == 3
        assert len((await client(folder).queue()).entries) == 3
        assert (await client(folder, "bob").why(1)).state == "running"


async def test_without_a_user_the_page_sees_no_private_job(folder: Path) -> None:
    async with cluster(folder):
        nobody = client(folder)
        assert await refusal(nobody.queue()) == PRIVATE
        assert await refusal(nobody.why(1)) == PRIVATE
        assert (await nobody.status()).nodes_total == 4


async def test_with_a_group_its_members_see_every_job_and_other_users_their_own(folder: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    async with cluster(folder, private="none", group=group):
        assert len((await client(folder, ME).queue()).entries) == 3
        assert [entry.user for entry in (await client(folder, "bob").queue()).entries] == ["bob"]
        assert await refusal(client(folder).queue()) == PRIVATE


async def test_only_headway_web_may_name_a_user(folder: Path) -> None:
    async with cluster(folder, web=False):
        for socket in ("status.sock", "admin.sock"):
            for call in (client(folder, "bob", socket).queue, client(folder, "bob", socket).status):
                assert await refusal(call()) == (NotPermittedError, Reason.USER_NOT_ACCEPTED)
        # and each user sees their own without naming anybody
        assert [entry.user for entry in (await client(folder).queue()).entries] == [ME]


@pytest.mark.parametrize("name", ["", "-x", "a b", "x" * 300, "<script>", "ann;"])
async def test_what_is_no_name_of_a_user_is_refused(folder: Path, name: str) -> None:
    async with cluster(folder):
        assert await refusal(client(folder, name).queue()) == (NotPermittedError, Reason.USER_NOT_ACCEPTED)


def test_a_name_that_no_metadata_can_hold_is_refused_before_the_call() -> None:
    for name in ("änn", "a\nb"):
        with pytest.raises(InvalidRequestError, match="is not the name of a user"):
            AsyncClient("/nowhere", user=name)


async def test_a_user_named_before_the_first_reading_waits(folder: Path) -> None:
    world = world_in(folder)
    async with serve_admin(world, folder, "", web_uid=os.getuid()):
        assert (await client(folder, "bob").status()).nodes_total == 0
        assert (await refusal(client(folder, "bob").queue()))[1] is Reason.NOT_READY


AS_USER = """
import datetime, os, sys  # datetime: protobuf imports it late, when this user may not be able to read the library
from pathlib import Path
from headway_client import Client, HeadwayError
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
for user in ("ann", None):
    try:
        print([entry.user for entry in Client({path!r}, user=user).queue().entries])
    except HeadwayError as error:
        print(error.reason)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can ask as other users")
async def test_the_kernel_says_which_process_is_headway_web(folder: Path) -> None:
    folder.chmod(0o755)
    world = world_in(folder)
    world.sbatch(gpus_per_node=8, user="ann")
    world.sbatch(gpus_per_node=8, user="bob")
    await world.turn()
    world.slurm_says(PrivateData="jobs")
    said = {}
    async with serve_admin(world, folder, "", web_uid=4242):
        for uid in (4242, 4243):
            program = AS_USER.format(uid=uid, path=str(folder / "status.sock"))
            done = await asyncio.to_thread(
                subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                env={**os.environ, "PYTHONPATH": str(Path(headway_client.__file__).parents[1])},
            )  # fmt: skip
            assert done.stderr == ""
            said[uid] = done.stdout.splitlines()
    assert said == {4242: ["['ann']", "jobs-private"], 4243: ["user-not-accepted", "jobs-private"]}


def test_the_web_user_is_a_user_of_its_own() -> None:
    def settings(name: str) -> ControllerSettings:
        return ControllerSettings(partitions=("dl",), web_user=name)

    assert web_uid(settings("")) is None
    assert web_uid(settings("12345")) == 12345
    assert ControllerSettings(partitions=("dl",)).web_user == "headway-web"  # which this machine may lack
    web_uid(ControllerSettings(partitions=("dl",)))
    with pytest.raises(ConfigurationError, match="web_user: there is no user 'no-such-user'"):
        web_uid(settings("no-such-user"))
    for name in ("root", str(os.getuid())):
        with pytest.raises(ConfigurationError, match="a user of its own"):
            web_uid(settings(name))


@pytest.mark.parametrize(
    ("private", "seen"), [("none", {"ann", "bob", ME}), ("usage", {"bob"}), ("jobs", {"bob"}), ("all", {"bob"})]
)
async def test_usage_is_private_where_slurm_keeps_jobs_or_usage_private(
    folder: Path, private: str, seen: set[str]
) -> None:
    async with cluster(folder, private):
        found = await client(folder, "bob").usage()
        assert {user.user for user in found.users} == seen
        assert found.all_users == (private == "none")
        # and root sees all
        every = await client(folder, socket="admin.sock").usage()
        assert {user.user for user in every.users} == {"ann", "bob", ME}


async def test_private_usage_hides_no_jobs_and_is_of_nobody_for_a_page_without_a_user(folder: Path) -> None:
    async with cluster(folder, "usage"):
        assert len((await client(folder, "bob").queue()).entries) == 3
        assert await refusal(client(folder).usage()) == PRIVATE


def preempted(world: ControllerWorld, job_id: str, times: int = 1) -> None:
    """Add ended preemptions of that job to the journal."""
    (job,) = (each for each in world.last.observation.snapshot.jobs if each.key.job_id == job_id)  # type: ignore[union-attr]
    for _ in range(times):
        row = Preemption(
            number=0, job_id=job_id, raw_id=job.raw_id or 0, submit_time_s=job.key.submit_time_s, restarts=0,
            cause=Cause.OPERATOR, why="to make room for job 3", way=PreemptionMethod.NONE, force=True, nodes=("n1",),
            constraint=RelocationConstraint(), within_s=60.0, stage=Stage.CALLED_OFF, asked_s=1.0, ended_s=2.0,
        )  # fmt: skip
        kept = world.journal.preemptions.add(row)
        world.journal.preemptions.save(kept)


async def test_the_newest_preemptions_of_a_user_are_found_behind_those_of_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.admin.own_jobs._AT_ONCE", 7)
    async with cluster(folder) as world:
        # given two preemptions of ann's job before and between many of bob's
        for job_id, times in (("1", 1), ("2", 15), ("1", 1), ("2", 20)):
            preempted(world, job_id, times)
        # then a limit counts what she may see
        ann = client(folder, "ann")
        found = await ann.preemptions()
        assert ([row.number for row in found.preemptions], found.more) == ([17, 1], False)
        assert {row.why for row in found.preemptions} == {"to make room for another job"}
        newest = await ann.preemptions(1)
        assert ([row.number for row in newest.preemptions], newest.more) == ([17], True)
        older = await ann.preemptions(1, before=17)
        assert ([row.number for row in older.preemptions], older.more) == ([1], False)
        # and one by its number is hers or nobody's
        assert [row.number for row in (await ann.preemptions(number=17)).preemptions] == [17]
        for number in (16, 18, 99, 2**64 - 1):
            assert (await ann.preemptions(number=number)).preemptions == ()
        snapshot = await ann.snapshot()
        assert snapshot.preemptions is not None
        assert len(snapshot.preemptions.preemptions) == 2


async def test_preemptions_of_forgotten_jobs_belong_to_the_user_of_their_last_run(folder: Path) -> None:
    async with cluster(folder) as world:
        preempted(world, "1")
        key = world.last.observation.snapshot.jobs[0].key  # type: ignore[union-attr]
        world.journal.preemptions.save(replace(world.journal.preemptions.newest(1)[0], job_id="50"))
        assert (await client(folder, "bob").preemptions()).preemptions == ()
        world.journal.record_runs([RunRecord(key._replace(job_id="50"), "bob", "x", 1.0, 2.0, 1.0, 8, 1, "COMPLETED")])
        assert [row.job_id for row in (await client(folder, "bob").preemptions()).preemptions] == ["50"]
        assert (await client(folder, "ann").preemptions()).preemptions == ()


async def test_past_events_of_an_earlier_job_are_not_shown_to_the_user_that_has_its_id_now(folder: Path) -> None:
    async with cluster(folder) as world:
        world.events._recent.append(LoggedEvent(1.0, "ended", "2", "of an earlier job", "ann"))
        world.events.add("advice", "2", "of this job")
        events = client(folder, "bob").events(since_s=0.0, past_only=True, job_id=2)
        texts = [event.text async for event in events]
        assert "of this job" in texts and "of an earlier job" not in texts


async def test_preemptions_of_an_earlier_job_are_not_of_the_user_that_has_its_id_now(folder: Path) -> None:
    """Slurm issues ids again after a loss of its state."""
    async with cluster(folder) as world:
        # given bob's job 1 of long ago, requeued once, and an even earlier one of carol, whose id ann's job has now
        preempted(world, "1")
        (row,) = world.journal.preemptions.newest(1)
        now_s = row.submit_time_s
        for before_s in (500, 3000):
            world.journal.preemptions.save(replace(row, number=before_s, submit_time_s=now_s - before_s))
        for user, before_s in (("bob", 450), ("carol", 2990)):
            key = JobKey("1", now_s - before_s)
            world.journal.record_runs([RunRecord(key, user, "x", 1.0, 2.0, 1.0, 8, 1, "COMPLETED")])
        # then each has the preemptions of their own job
        for user, number in (("ann", row.number), ("bob", 500), ("carol", 3000)):
            assert [each.number for each in (await client(folder, user).preemptions()).preemptions] == [number]


async def test_all_preemptions_come_in_several_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.admin.own_jobs.MOST", 4)
    async with cluster(folder) as world:
        preempted(world, "2", 10)
        with AdminClient(folder / "admin.sock") as headway:
            for limit, numbers, more in ((0, 10, False), (3, 3, True), (9, 9, True), (10, 10, False), (20, 10, False)):
                found = await asyncio.to_thread(headway.preemptions, limit)
                shown = [row.number for row in found.preemptions]
                assert (shown, found.more) == (list(range(10, 10 - numbers, -1)), more), limit
            assert (await asyncio.to_thread(headway.preemption, 7)).number == 7
            with pytest.raises(CallError, match="shows no preemption 77 any more"):
                await asyncio.to_thread(headway.preemption, 77)
