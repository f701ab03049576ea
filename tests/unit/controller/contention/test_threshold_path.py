"""The path from measurements to a job on other nodes: threshold, policy, agents and an embedded Slurm, with no person involved."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from controller.contention.service import ContentionService
from controller.slurm.model.job import SlurmJob
from controller.state.preemption import Cause, Stage
from protos.headway.v1 import admin_pb2 as pb
from tests.unit.controller.admin.test_service import asking
from tests.unit.controller.cli.test_app import headway
from tests.unit.controller.examples.slowed import WINDOW_S, known, pace
from tests.unit.controller.worlds.preempted import Preempted, no, preempted_world, silent
from tests.unit.policies.processes import eventually

SETTINGS = {"contention_sustained_s": 60, "preemption_min_run_s": 60, "preemption_cooldown_s": 100}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, because of the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


class Pair:
    """Two jobs on the same two of four nodes, what is measured of them, and the judge."""

    def __init__(self, cluster: Preempted, judging: ContentionService, jobs: tuple[SlurmJob, SlurmJob]) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.judging = judging
        self.first, self.second = (job.key.job_id for job in jobs)

    def nodes(self, job_id: str) -> set[str]:
        return {share.node for share in self.world.slurm.job(job_id).allocated}

    async def pass_window(self, first: float = 1.6, second: float = 1.8, *, beside: bool = True) -> None:
        """Half a minute in which they have these CS, a cycle after it, and what the judge makes of that."""
        start_s = self.world.clock.now()
        await self.world.go_on(WINDOW_S, step_s=5)
        jobs = [self.world.slurm.job(job_id) for job_id in (self.first, self.second)]
        numbers = [int(job.job_id) for job in jobs]
        paces = [
            pace(
                number,
                value,
                *(numbers[1 - place : 2 - place] if beside else ()),
                start_s=start_s,
                restart=job.restarts,
            )
            for place, (number, value, job) in enumerate(zip(numbers, (first, second), jobs, strict=True))
        ]
        self.world.know(known(*paces))
        await self.world.turn()
        await self.judged()

    async def judged(self) -> None:
        """The task has seen the last cycle."""

        async def seen() -> bool:
            return not self.judging._news.is_set()

        await eventually(seen)


@asynccontextmanager
async def pair_of_jobs(folder: Path, mode: str, **settings: Any) -> AsyncIterator[Pair]:
    changes = {"preemption": mode, **SETTINGS, **settings}
    async with preempted_world(folder, window_s=WINDOW_S, settings_changes=changes) as cluster:
        judging = cluster.world.contention
        assert judging is not None
        pair = Pair(cluster, judging, (await cluster.running(), await cluster.running()))
        assert pair.nodes(pair.first) == pair.nodes(pair.second) == {"n1", "n2"}
        yield pair


async def test_one_of_two_jobs_leaves_their_shared_nodes(folder: Path) -> None:
    async with pair_of_jobs(folder, "automatic") as pair, asking(folder / "admin.sock") as admin:
        # given two jobs that slow each other down, when it has lasted
        for _ in range(3):
            assert pair.world.preemptions.open == {}
            await pair.pass_window()
            if pair.world.preemptions.open:
                break
        # then the more affected saves, is stopped, and runs where nobody is
        row = await pair.cluster.comes_to(Stage.SAVED)
        assert (row.job_id, row.cause) == (pair.second, Cause.THRESHOLD)
        assert row.why.startswith("it trains at 3 steps/s, 1.80 times slower than alone")
        again = await pair.cluster.runs_again(pair.second)
        assert pair.nodes(pair.second) == {"n3", "n4"}
        await pair.cluster.train(again.key, restored_step=41, first_step_s=0.0)
        await pair.cluster.comes_to(Stage.RESUMED)
        # and both are left alone from then on, however slow they were
        for _ in range(6):
            await pair.pass_window(1.0, 1.0, beside=False)
        assert len((await admin.ListPreemptions(pb.ListPreemptionsRequest())).preemptions) == 1
        assert pair.nodes(pair.first) == {"n1", "n2"}
        assert pair.world.slurm.job(pair.first).restarts == 0


async def test_advice_is_shown_by_status_and_why_and_changes_nothing(folder: Path) -> None:
    async with pair_of_jobs(folder, "advise") as pair:
        for _ in range(4):
            await pair.pass_window()
        assert pair.world.preemptions.newest(10) == []
        config = folder / "controller.toml"
        config.write_text(f'partitions = ["dl"]\nruntime_dir = "{folder}"\n')
        where = ("--config", str(config))
        shown = (await headway("status", *where)).out
        assert f"advice      move job {pair.second} to n3,n4: it trains at 3 steps/s" in shown
        (row,) = (await headway("status", "--json", *where)).json["advice"]
        assert (row["job_id"], row["nodes"], row["avoid"]) == (pair.second, ["n3", "n4"], ["n1", "n2"])
        why = (await headway("why", pair.second, *where)).out
        assert "It should be moved to n3,n4: it trains at 3 steps/s, 1.80 times slower than alone" in why
        async with asking(folder / "status.sock") as status:
            (advice,) = (await status.GetStatus(pb.GetStatusRequest())).advice
            assert (advice.job_id, list(advice.nodes)) == (pair.second, ["n3", "n4"])
            assert (await status.Why(pb.WhyRequest(job_id=pair.second))).facts["advice"] == "move"
            # where jobs are private, users who may not see them do not learn of it either
            pair.world.slurm_says(PrivateData="jobs,users")
            assert not (await status.GetStatus(pb.GetStatusRequest())).advice


async def test_a_job_that_does_not_save_is_tried_less_and_less_often(folder: Path) -> None:
    async with pair_of_jobs(folder, "automatic", preemption_moves_per_hour=9) as pair:
        for agent in pair.cluster.agents.values():
            agent.answers = lambda _: no("rank 3 could not write: disk full")
        asked_s = []
        for _ in range(40):
            await pair.pass_window(1.2, 1.8)
            rows = pair.world.preemptions.newest(10)
            if len(rows) > len(asked_s):
                await pair.cluster.comes_to(Stage.CALLED_OFF, rows[0].number)
                asked_s.append(pair.cluster.row(rows[0].number).asked_s)
        # then each job is asked at once, and each time later
        by_job = {
            job_id: [row.asked_s for row in reversed(pair.world.preemptions.newest(10)) if row.job_id == job_id]
            for job_id in (pair.first, pair.second)
        }
        for times in by_job.values():
            assert len(times) >= 3
            waits = [later - sooner for sooner, later in pairwise(times)]
            assert waits[0] >= 100
            assert all(later >= 2 * sooner - 2 * WINDOW_S - 10 for sooner, later in pairwise(waits))
            assert waits == sorted(waits)
        assert all(pair.nodes(job_id) == {"n1", "n2"} for job_id in (pair.first, pair.second))


async def test_a_moved_job_whose_new_nodes_are_occupied_may_go_anywhere_after_a_while(folder: Path) -> None:
    async with pair_of_jobs(folder, "automatic", preemption_within_s=60) as pair:
        while not pair.world.preemptions.open:
            await pair.pass_window()
        await pair.cluster.comes_to(Stage.SAVED)
        # when another is faster
        await pair.world.cycle.errands()
        faster = pair.world.sbatch(gpus_per_node=8, nodes=2, duration_s=1e6)
        await pair.world.go_on(50)
        assert pair.nodes(pair.second) == set()
        assert pair.nodes(faster.job_id) == {"n3", "n4"}
        # then it waits for so long as it would have had for saving
        await pair.world.go_on(30)
        assert pair.nodes(pair.second) == {"n1", "n2"}
        assert "may go anywhere again: its new nodes are occupied" in pair.cluster.events(pair.second)


async def test_after_a_restart_of_the_controller_one_is_still_being_moved_and_the_other_waits(folder: Path) -> None:
    async with pair_of_jobs(folder, "automatic") as pair:
        for agent in pair.cluster.agents.values():
            agent.answers = silent
        while not pair.world.preemptions.open:
            await pair.pass_window()
        pair.cluster.restart()
        await pair.pass_window()
        (row,) = pair.world.preemptions.since(0)
        assert (row.job_id, row.stage) == (pair.second, Stage.ASKED)
        assert set(pair.judging.stays.values()) == {
            f"job {pair.second} is being preempted; the others are measured without it first"
        }
