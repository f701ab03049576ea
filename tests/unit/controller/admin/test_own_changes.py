"""Changes that users request for jobs of their own: by the uid that the kernel reports, within the operator's budget."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headway_client import AsyncClient

from controller.admin.refusal import CallRefused
from controller.admin.serve import serve_admin
from controller.admin.user_rights import UserRights
from controller.base.audit import AuditLog, Caller
from controller.preempt.user_budget import UserBudget
from controller.state.journal import Journal
from controller.state.preemption import Cause
from tests.unit.controller.worlds.as_user import OTHER, USER, call
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can call as other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


@asynccontextmanager
async def cluster(folder: Path, private: str = "none", **settings: Any) -> AsyncIterator[ControllerWorld]:
    """Job 1 runs on two nodes and is USER's, job 2 on one and is OTHER's."""
    world = world_in(folder, settings_changes=settings)
    world.endpoint.away = True
    world.sbatch(duration_s=1e6, gpus_per_node=8, nodes=2, user=USER)
    world.sbatch(duration_s=1e6, gpus_per_node=8, user=OTHER)
    await world.go_on(3)
    world.slurm_says(PrivateData=private)
    async with serve_admin(world, folder, "", audit=AuditLog(world.clock, folder / "audit.jsonl"), web_uid=4242):
        yield world


async def left(folder: Path, user: str, request: tuple[str, dict[str, Any]]) -> int | None:
    """Make that call, which succeeds. Gives the number of changes that the user may request then."""
    ((done, found),) = await call(folder, user, request)
    assert done == "done", found
    return found["user_changes_left"]


PREEMPT = ("preempt", {"job_id": 1, "force": True})


async def test_a_user_changes_their_own_jobs_within_the_budget_and_no_others(folder: Path) -> None:
    async with cluster(folder, user_changes_per_hour=2) as world:
        # when a user asks for jobs of another user, for impossible things, and for their own job
        found = await call(
            folder, USER,
            ("preempt", {"job_id": 2, "force": True}), ("move", {"job_id": 99}), ("move", {"job_id": 1, "to": ["n9"]}),
            ("resize", {"job_id": 1, "gpus": 24}), ("move", {"job_id": 1, "force": True}),
            ("resize", {"job_id": 2, "gpus": 8, "force": True}), ("use_policy", {"address": "unix:///x"}),
        )  # fmt: skip
        # then only the last is begun, as the user's, and refused requests have cost nothing
        reasons = [
            "not-your-job",
            "unknown-job",
            "invalid-preemption",
            "not-resizable",
            "done",
            "not-your-job",
            "admin-only",
        ]
        assert [line[0] for line in found] == reasons
        assert found[0][1].startswith(f"job 2 is {OTHER}'s, and users may change only jobs of their own")
        assert "was submitted with 16 GPUs, and its user may not give it more" in found[3][1]
        assert (found[4][1]["cause"], found[4][1]["user_changes_left"]) == ("user", 1)
        (row,) = world.preemptions.newest(9)
        assert (row.job_id, row.cause, row.force) == ("1", Cause.USER, True)
        assert [event.text for event in world.events.recent("1")][
            -1
        ] == "about to be stopped by force, for its user: by hand"
        # and the audit log has every request
        lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
        assert {(line["uid"], line["user"]) for line in lines} == {(pwd.getpwnam(USER).pw_uid, USER)}
        assert [(line["action"], line["outcome"].split(":")[0]) for line in lines] == [
            ("preempt", "refused (not-your-job)"), ("move", "refused (unknown-job)"), ("move", "refused (invalid-preemption)"),
            ("resize", "refused (not-resizable)"), ("move", "begun as preemption 1"), ("resize", "refused (not-your-job)"),
            ("policy-use", "refused (admin-only)"),
        ]  # fmt: skip


async def test_a_spent_budget_says_when_the_next_change_is_allowed_also_after_a_restart(folder: Path) -> None:
    async with cluster(folder, user_changes_per_hour=1) as world:
        assert await left(folder, USER, PREEMPT) == 0
        await world.go_on(5)
        await world.clock.advance(600.0)
        # given a controller that was killed, and has the journal
        world.journal.close()
        world.restart()
        await world.turn()
        # when the user asks again
        ((reason, text),) = await call(folder, USER, PREEMPT)
        # then the change from before still counts
        assert reason == "changes-spent"
        assert text.startswith(
            "you have requested 1 change of your own jobs within the last hour, so none is left of 1 (user_changes_per_hour); the "
            "next is allowed in 50 min, at "
        )
        # but root has no such limit, and another user has a budget of their own
        assert (await AsyncClient(folder / "admin.sock").preempt(1, force=True)).user_changes_left is None
        assert await left(folder, OTHER, ("preempt", {"job_id": 2, "force": True})) == 0
        # and after an hour the user may again
        await world.clock.advance(3600.0)
        await world.go_on(8)
        assert await left(folder, USER, PREEMPT) == 0


async def test_private_jobs_of_others_cannot_be_told_from_jobs_that_do_not_exist(folder: Path) -> None:
    async with cluster(folder, private="jobs"):
        found = await call(folder, USER, ("preempt", {"job_id": 2}), ("preempt", {"job_id": 99}), PREEMPT)
        assert found[0][0] == "jobs-private"
        assert found[0] == found[1]
        assert (found[2][0], found[2][1]["user_changes_left"]) == ("done", 5)


async def test_an_operator_may_forbid_it_and_the_page_and_unknown_users_may_not(folder: Path) -> None:
    async with cluster(folder, user_changes_per_hour=0):
        ((reason, text),) = await call(folder, USER, PREEMPT)
        assert reason == "admin-only"
        assert "user_changes_per_hour = 0" in text
    async with cluster(folder):
        assert [line[0] for line in await call(folder, 4242, PREEMPT)] == ["user-not-accepted"]
        assert [line[0] for line in await call(folder, 4243, PREEMPT)] == ["not-your-job"]


@pytest.mark.parametrize(
    ("most", "ago_s", "left", "next_s"),
    [
        (2, [], 2, 0.0), (2, [100.0], 1, 0.0), (2, [3000.0, 100.0], 0, 600.0),
        (1, [3000.0, 100.0], 0, 3500.0),  # the operator has lowered it
        (1, [-500.0], 0, 3600.0),  # the clock was set back
        (0, [], 0, float("inf")),
    ],
)  # fmt: skip
def test_the_next_change_is_allowed_when_one_of_the_last_is_an_hour_old(
    most: int, ago_s: list[float], left: int, next_s: float
) -> None:
    budget = UserBudget(most, [10_000.0 - ago for ago in ago_s], 10_000.0)
    assert (budget.left, budget.next_s - 10_000.0) == (left, next_s)


def test_changes_from_a_clock_that_was_ahead_count_for_an_hour(tmp_path: Path) -> None:
    # given a user whose budget was spent while the clock was a year ahead
    clock = SimpleNamespace(now_s=1_700_000_000.0)
    clock.now = lambda: clock.now_s
    year_s = 365 * 86_400.0
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        settings = SimpleNamespace(user_changes_per_hour=1)
        controller = SimpleNamespace(journal=journal, clock=clock, settings=settings)
        viewer: Any = SimpleNamespace(controller=controller)
        rights, caller = UserRights(viewer), Caller(1001, "ann")

        def change() -> None:
            with rights.spending(caller, "preempt", "1"):
                pass

        clock.now_s += year_s
        change()
        # when the clock is set back, then the change counts for an hour from the next request on
        clock.now_s -= year_s
        for later_s in (0.0, 1800.0, 1799.0):
            clock.now_s += later_s
            with pytest.raises(CallRefused, match="within the last hour"):
                change()
        clock.now_s += 2.0
        change()
        with pytest.raises(CallRefused, match="within the last hour"):
            change()
