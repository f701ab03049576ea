"""Arrays with a throttle (--array=0-23%3): tasks beyond it are not placed, so they keep GPUs from no other job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import brief
from controller.cycle.decision.plan import Plan, Start
from controller.observe.observer import Observer
from controller.observe.role import Obstacle, Role
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.ledger import Ledger
from policies.model import Placement
from tests.unit.controller.examples.build import job, request, running, snapshot
from tests.unit.controller.worlds.world import World


def array_of(world: World, tasks: int, throttle: int, duration_s: float = 100.0) -> list[JobKey]:
    first = world.sbatch(duration_s, gpus_per_node=1, array=tuple(range(tasks)), throttle=throttle)
    array = first.job_id.partition("_")[0]
    return [first._replace(job_id=f"{array}_{task}") for task in range(tasks)]


async def test_no_more_tasks_are_placed_than_may_run(tmp_path: Path) -> None:
    # given an array of which three tasks may run at once, and GPUs for many more
    world = World(tmp_path, policy="fifo-skip")
    tasks = array_of(world, 24, throttle=3)
    # when it is placed
    await world.turn()
    # then only three are bound to nodes
    assert [key for key in tasks if world.journal.decisions_of(key)] == tasks[:3]
    await world.go_on(20)
    assert [key for key in tasks if world.phase(key) is Phase.RUNNING] == tasks[:3]
    assert [key for key in tasks if world.journal.decisions_of(key)] == tasks[:3], "and no other was tried since"
    assert not world.ledger.refusals


async def test_a_job_behind_the_array_starts_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    gpus = sum(node.gpus for node in (await world.slurm.client.snapshot()).nodes)
    array_of(world, gpus, throttle=1)
    other = world.sbatch(gpus_per_node=8)
    await world.go_on(3)
    assert world.phase(other) is Phase.RUNNING


async def test_each_end_lets_the_next_task_start(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    tasks = array_of(world, 8, throttle=2, duration_s=10.0)
    most = 0
    for _ in range(80):
        await world.go_on(1)
        most = max(most, sum(world.phase(key) is Phase.RUNNING for key in tasks))
    assert most == 2
    assert {world.phase(key) for key in tasks} == {Phase.ENDED}, "none waits for a pause after a refusal"


async def test_why_says_that_other_tasks_come_first(tmp_path: Path) -> None:
    world = World(tmp_path, policy="fifo-skip")
    _, second = array_of(world, 2, throttle=1)
    await world.go_on(3)
    result = await world.turn()
    assert result.observation.standings[second].obstacle is Obstacle.ARRAY_THROTTLE
    view = CycleView(result, world.ledger, world.settings.partitions)
    job_of_it, found = next(each for each in view.jobs() if each[0].key == second)
    assert "as its user allows at once" in brief(view, job_of_it, found, world.clock.now())


def tasks_of(*tasks: SlurmJob, throttle: int = 1) -> list[SlurmJob]:
    return [replace(task, array_job_id=7, array_throttle=throttle) for task in tasks]


def shown(*jobs: SlurmJob) -> list[str]:
    return [row.key.job_id for row in Observer().observe(snapshot(*jobs), Ledger(), frozenset({"dl"})).rows]


def test_a_task_that_its_user_changed_does_not_keep_the_others_waiting() -> None:
    """Task 1 may fit nowhere at present, so policies see the first task of each kind."""
    big = job("7_1", request=request(gpus_per_node=8))
    assert shown(*tasks_of(big, job("7_2"), job("7_3"))) == ["7_1", "7_2"]


def test_tasks_that_run_or_were_requeued_count() -> None:
    on = running("7_1", on={"n1": 1})
    assert shown(*tasks_of(on, job("7_2"), job("7_3"), throttle=2)) == ["7_1", "7_2"]
    again = job("7_1", submit=999_500, restarts=1)
    assert shown(*tasks_of(again, job("7_2"), job("7_3"), throttle=2)) == ["7_2", "7_3"]


def test_a_task_that_has_ended_does_not_count_while_its_epilog_runs() -> None:
    ends = running("7_1", on={"n1": 1}, phase=Phase.COMPLETING)
    assert shown(*tasks_of(ends, job("7_2"))) == ["7_1", "7_2"]
    assert shown(*tasks_of(replace(ends, restarts=1), job("7_2"))) == ["7_1"], "a requeued task keeps its turn"


def test_only_one_record_of_an_array_shows_its_throttle() -> None:
    started, waits = running("7_1", on={"n1": 1}, array_job_id=7), job("7_2", array_job_id=7, array_throttle=1)
    observed = Observer().observe(snapshot(started, waits, job("8")), Ledger(), frozenset({"dl"}))
    assert [row.key.job_id for row in observed.rows] == ["7_1", "8"]
    assert observed.standings[waits.key].role is Role.INELIGIBLE
    assert observed.array_room == {7: 0}


def test_a_plan_is_cut_to_the_throttle() -> None:
    starts = tuple(Start(row, Placement((0,), (1,)), f"reason {row}") for row in range(4))
    arrays = [7, 7, None, 8]
    plan = Plan(starts, queue=(9,)).within(arrays.__getitem__, {7: 1, 9: 0})
    assert [start.row for start in plan.starts] == [0, 2, 3]
    assert plan.queue == (1, 9)
    assert plan.reasons == {1: "reason 1"}
