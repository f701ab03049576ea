"""Invariants of the embedded Slurm: after any operations its accounts balance, and every job runs once to its end."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from controller.base.errors import SlurmError
from controller.slurm.client import Pin
from controller.slurm.embedded import ClusterDescription, Delays, sbatch_request
from controller.slurm.embedded.view import new_view
from controller.slurm.model.job import JobKey, Phase
from tests.unit.controller.worlds.embedded import Lab


async def _books_balance(lab: Lab) -> None:
    snapshot = await lab.client.snapshot()
    used: dict[str, list[int]] = {node.name: [] for node in snapshot.nodes}
    for job in snapshot.jobs:
        assert bool(job.allocated) == job.phase.occupies_nodes, job
        assert not (job.held and job.phase is Phase.CONFIGURING), job
        assert job == new_view(lab.slurm.job(job.key.job_id)), "what clients see is not of before a change"
        for share in job.allocated:
            assert share.gpu_mask.bit_count() == share.gpus
            used[share.node].append(share.gpu_mask)
    for node in snapshot.nodes:
        masks = used[node.name]
        together = 0
        for mask in masks:
            assert together & mask == 0, f"{node.name}: a GPU is given twice"
            together |= mask
        assert together >> node.gpus == 0


def _random_job(lab: Lab, rng: random.Random) -> JobKey:
    form = rng.choice(["gpus_per_node", "gpus", "gpus_per_task"])
    count = rng.randint(1, 8)
    request = sbatch_request(**{form: count}, nodes=rng.choice([None, 1, 2, (1, 3)]))
    return lab.sbatch(
        request=request,
        duration_s=rng.uniform(1, 300),
        time_limit_s=rng.choice([None, 60, 600]),
        hold=rng.random() < 0.5,
        exclusive=rng.random() < 0.1,
        array=rng.choice([(), (), (), (0, 1, 2)]),
        requeue=rng.random() < 0.8,
        traps=rng.choice([frozenset(), frozenset({"TERM"})]),
        model=rng.choice(["vgg16", "MoE", ""]),
    )


async def _disturb(lab: Lab, rng: random.Random) -> None:
    jobs = (await lab.client.snapshot()).jobs
    node = rng.choice(("n1", "n2", "n3", "n4"))
    with suppress(SlurmError):
        match rng.randint(0, 11):
            case 0:
                lab.slurm.node_down(node)
            case 1:
                lab.slurm.node_drain(node)
            case 2 | 3 | 4:
                lab.slurm.node_resume(node)
            case 5:
                lab.slurm.crash_slurmctld(lose_newest=rng.choice([0, 0, 1, 2]))
            case 6 if jobs:
                lab.slurm.cancel(rng.choice(jobs).key.job_id)
            case 7 if jobs:
                lab.slurm.suspend(rng.choice(jobs).key.job_id)
            case 8 if jobs:
                lab.slurm.resume(rng.choice(jobs).key.job_id)
            case 9 if jobs:
                await lab.client.requeue_hold([rng.choice(jobs).key])
            case 10 if jobs:
                job = rng.choice(jobs)
                await lab.client.pin([Pin(job.key, (node,), None, job.request)])
            case _ if jobs:
                await lab.client.release([job.key for job in rng.sample(jobs, k=len(jobs) // 2)])


@pytest.mark.parametrize("seed", range(12))
async def test_books_balance_through_a_day_of_accidents(seed: int) -> None:
    slowdown = ("max-min", "pair-table") if seed % 2 else ()
    description = ClusterDescription(delays=Delays(min_job_age_s=120), slowdown=slowdown, network={"nic_gbs": 1.0})
    rng, lab = random.Random(seed), Lab(description)
    for _ in range(250):
        with suppress(SlurmError):
            if rng.random() < 0.4:
                _random_job(lab, rng)
            await _disturb(lab, rng)
            await _books_balance(lab)
        await lab.pass_time(rng.choice([0.01, 0.1, 1, 10, 60]))


@pytest.mark.parametrize("seed", range(4))
async def test_left_alone_every_job_ends_and_the_cluster_is_empty(seed: int) -> None:
    rng, lab = random.Random(seed), Lab()
    for _ in range(60):
        lab.sbatch(
            request=sbatch_request(gpus_per_node=rng.randint(1, 8), nodes=rng.randint(1, 4)),
            duration_s=rng.uniform(1, 600),
            time_limit_s=600,
        )
        await lab.pass_time(rng.uniform(0, 60))
    await lab.pass_time(60 * 600)
    snapshot = await lab.client.snapshot()
    assert {job.phase for job in snapshot.jobs} <= {Phase.ENDED}
    assert {node.state for node in snapshot.nodes} == {"IDLE"}


async def test_the_same_day_twice_is_the_same_day() -> None:
    async def day() -> list[object]:
        rng, lab = random.Random(7), Lab()
        for _ in range(80):
            with suppress(SlurmError):
                _random_job(lab, rng)
                await _disturb(lab, rng)
            await lab.pass_time(rng.uniform(0, 60))
        return [(job.key, job.state, job.start_time_s, job.allocated) for job in (await lab.client.snapshot()).jobs]

    first = await day()
    assert first
    assert first == await day()


async def test_a_cluster_that_runs_by_itself_wakes_its_listener() -> None:
    woken = asyncio.Event()
    lab = Lab(wake=lambda line: woken.set() if line.startswith("end") else None)
    runner = asyncio.create_task(lab.slurm.run())
    try:
        await lab.pass_time(0)
        lab.sbatch(duration_s=100)
        await lab.pass_time(99)
        assert not woken.is_set()
        await lab.pass_time(2)
        assert woken.is_set()
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
