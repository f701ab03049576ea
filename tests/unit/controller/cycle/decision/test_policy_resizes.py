"""A policy that resizes, beside an embedded Slurm: jobs start in the size that it chooses, and change it by a preemption."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import Phase
from controller.state.preemption import Cause
from policies.api import load_policy
from policies.heuristics.allocation.drf import Drf
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.worlds.near_nodes import NEAR, show_near_nodes
from tests.unit.controller.worlds.world import World

ELASTIC = "headway=preemptible+min-gpus:1+max-gpus:16+steps:1000+epochs:20"
AUTOMATIC = {"preemption": "automatic", "preemption_min_run_s": 0.0, "preemption_cooldown_s": 0.0}


class Served(FakeEndpoint):
    """A server of one policy, which needs no process."""

    def __init__(self, policy):
        super().__init__()
        self.policy = policy

    async def describe(self, deadline_s):
        return self.policy.spec

    async def decide(self, state, deadline_s):
        return self.policy.decide(state)


def world_of(folder, policy, **settings):
    return World(folder, endpoint=Served(policy), settings_changes=AUTOMATIC | settings)


def elastic(world, gpus, duration_s=5000.0, comment=ELASTIC, **more):
    request = sbatch_request(gpus=gpus, ntasks=gpus)
    return world.sbatch(duration_s, request=request, comment=comment, traps=frozenset({"USR1"}), **more)


def gpus_of(world, key):
    return sum(world.nodes(key).values())


async def test_a_job_starts_in_the_size_that_the_policy_chooses(tmp_path):
    # given two jobs that ask for 4 of the cluster's 32 GPUs, and take up to 16
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    keys = [elastic(world, 4) for _ in range(2)]
    # when the policy divides the GPUs among them
    await world.go_on(3)
    # then both run with 16, and keep their own request in the ledger
    assert [gpus_of(world, key) for key in keys] == [16, 16]
    assert world.ledger.originals[keys[0]].gpus_per_job == 4
    jobs = (await world.turn()).observation.state.jobs
    assert jobs.min_gpus is not None and jobs.max_gpus is not None
    assert (jobs.num_gpus.tolist(), jobs.min_gpus.tolist(), jobs.max_gpus.tolist()) == ([16, 16], [1, 1], [16, 16])


async def test_running_jobs_shrink_for_others_and_grow_when_these_have_ended(tmp_path):
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    first = elastic(world, 4)
    await world.go_on(3)
    assert gpus_of(world, first) == 16
    # given another two that leave only 8 for some of them
    others = [elastic(world, 4, duration_s) for duration_s in (100.0, 5000.0, 5000.0)]
    await world.go_on(40)
    row = world.preemptions.open[int(first.job_id)]
    assert (row.cause, row.constraint.only) == (Cause.POLICY, frozenset())
    assert row.constraint.gpus is not None and row.constraint.gpus < 16
    assert "GPUs: its dominant share" in row.why
    # when it has saved and requeued itself
    world.slurm.requeue(first.job_id)
    await world.go_on(20)
    # then it runs again, smaller, and the others run beside it
    assert world.phase(first) is Phase.RUNNING
    assert gpus_of(world, first) < 16
    assert sum(gpus_of(world, key) for key in (first, *others)) <= 32


async def test_jobs_grow_also_while_no_job_waits(tmp_path):
    # given three jobs that run, of which one ends soon
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    long = [elastic(world, 4) for _ in range(2)]
    elastic(world, 4, 20.0)
    await world.go_on(10)
    assert all(gpus_of(world, key) < 16 for key in long)
    # when it has ended, and the round is over
    await world.go_on(60)
    # then the others get a request to save, to be resized
    asked = [world.preemptions.open.get(int(key.job_id)) for key in long]
    assert any(row is not None and row.constraint.gpus is not None for row in asked)


async def test_a_job_whose_request_does_not_allow_every_size_keeps_its_own(tmp_path):
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    fixed = world.sbatch(5000.0, gpus_per_node=4, comment=ELASTIC)
    pinned = world.sbatch(5000.0, request=sbatch_request(gpus=4, ntasks=2), comment=ELASTIC)
    await world.go_on(3)
    assert [gpus_of(world, fixed), gpus_of(world, pinned)] == [4, 4]


async def test_a_job_that_only_slurm_can_place_is_not_resized(tmp_path, monkeypatch):
    # given an elastic job that Slurm has placed, because its user asks for nodes near each other
    show_near_nodes(monkeypatch)
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    near = elastic(world, 16, name=NEAR)
    await world.go_on(3)
    for _ in range(2):
        elastic(world, 4)
    # when the policy would give it another number of GPUs
    await world.go_on(120)
    # then it trains on, and no preemption was begun
    assert gpus_of(world, near) == 16
    assert world.preemptions.newest(10) == []


async def test_a_policy_that_does_not_resize_starts_elastic_jobs_as_they_ask(tmp_path):
    world = world_of(tmp_path, load_policy("fifo"))
    key = elastic(world, 4)
    await world.go_on(3)
    assert gpus_of(world, key) == 4


async def test_the_size_survives_a_restart_of_the_controller(tmp_path):
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    keys = [elastic(world, 4) for _ in range(2)]
    await world.go_on(3)
    world.restart()
    await world.go_on(3)
    jobs = (await world.turn()).observation.state.jobs
    assert jobs.num_gpus.tolist() == [16, 16]
    assert [world.phase(key) for key in keys] == [Phase.RUNNING, Phase.RUNNING]


@pytest.mark.parametrize(
    ("tasks", "limits", "size"),
    [
        (4, "max-gpus:8", 8),
        (4, "min-gpus:20+max-gpus:24", 20),
        (4, "max-gpus:16", 16),
        (1, "max-gpus:6", 6),
        (4, "max-gpus:100+min-gpus:50", 4),
    ],
    ids=["fewer", "more", "as before", "one task", "its own"],
)
async def test_a_size_that_its_user_no_longer_allows_is_not_given_to_a_job(tmp_path, tasks, limits, size):
    # given a job of 4 GPUs that was given 16, and has to be placed again
    world = world_of(tmp_path, Drf(elastic=True, round_s=30.0))
    request = sbatch_request(gpus=4, ntasks=tasks)
    key = world.sbatch(5000.0, request=request, comment=ELASTIC, traps=frozenset({"USR1"}))
    await world.go_on(3)
    assert gpus_of(world, key) == 16
    world.slurm.requeue(key.job_id, held=True)
    await world.go_on(5)
    # when its user sets other limits before that, and the policy resizes no jobs any more
    waits = world.slurm.job(key.job_id)
    waits.submission = replace(waits.submission, comment=f"headway=preemptible+{limits}")
    await world.decider.use(Served(load_policy("fifo")), None)
    world.slurm.user_release(key.job_id)
    await world.go_on(10)
    # then it starts in the nearest size that its user allows
    assert gpus_of(world, key) == size


async def test_epochs_and_progress_are_stated_and_reported(tmp_path):
    world = world_of(tmp_path, load_policy("fifo"))
    stated = elastic(world, 4)
    plain = world.sbatch(5000.0, gpus_per_node=1)
    jobs = (await world.turn()).observation.state.jobs
    np.testing.assert_array_equal(jobs.epochs, [20.0, np.nan])
    np.testing.assert_array_equal(jobs.progress, [0.0, np.nan])
    assert jobs.ids == (stated.job_id, plain.job_id)
