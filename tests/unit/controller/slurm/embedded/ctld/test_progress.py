"""Progress of the embedded Slurm's jobs: the simulator's engine computes it, and jobs that share links take longer."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import ConfigurationError, SlurmError
from controller.slurm.embedded import ClusterDescription, Delays, EmbeddedSlurm, NodeDescription, sbatch_request
from controller.slurm.model.job import JobKey, Phase
from simulator.slowdown.profiles.papers import paper_profiles
from tests.unit.controller.worlds.embedded import Lab

NIC_GBS = 1.0
NO_DELAYS = Delays(schedule_s=0, launch_s=0, exit_s=0, requeue_s=0, min_job_age_s=1e9)
MICROSECOND = 1e-6
"""A float tells the time since the Unix epoch to a quarter of that."""


def sharing(delays: Delays = NO_DELAYS) -> ClusterDescription:
    """Two nodes, each with one NIC that the jobs on both share max-min fairly."""
    return ClusterDescription(
        nodes=(NodeDescription(names="n[1-2]", gpus=8),),
        slowdown=("max-min:reference=alone",),
        network={"nic_gbs": NIC_GBS},
        delays=delays,
    )


def factor(model: str, jobs: int) -> float:
    """Speed of one of so many equal jobs on the same two NICs: its bytes take so many times as long."""
    profile = paper_profiles().of(model)
    alone_s = profile.bytes / (NIC_GBS * 1e9)
    return profile.step_s(alone_s) / profile.step_s(jobs * alone_s)


HALF = factor("vgg16", 2)


class Pair:
    """Two equal jobs of 100 s over the same two NICs, started at once."""

    def __init__(self, lab: Lab | None = None, **more: Any) -> None:
        self.lab = lab or Lab(sharing())
        self.first = wide(self.lab, **more)
        self.second = wide(self.lab, **more)

    def ran_s(self, key: JobKey) -> float:
        return ran_s(self.lab, key)


def wide(lab: Lab, gpus: int = 4, duration_s: float = 100, **more: Any) -> JobKey:
    """A job on both nodes, with so many GPUs of each."""
    return lab.sbatch(gpus=gpus, nodes=2, duration_s=duration_s, **({"model": "VGG-16"} | more))


def ran_s(lab: Lab, key: JobKey) -> float:
    """From the last start to the end."""
    job = lab.job(key)
    assert job.phase is Phase.ENDED, job
    assert job.end_time_s is not None and job.start_time_s is not None
    return job.end_time_s - job.start_time_s


def about(seconds: float) -> object:
    return pytest.approx(seconds, abs=MICROSECOND)


async def test_jobs_that_share_links_take_longer_by_the_factor_of_the_model() -> None:
    pair = Pair()
    await pair.lab.pass_time(250)
    assert pair.ran_s(pair.first) == pair.ran_s(pair.second) == about(100 / HALF)
    alone = wide(pair.lab)
    await pair.lab.pass_time(101)
    assert pair.ran_s(alone) == about(100)


async def test_a_job_that_starts_later_slows_others_down_from_then_on() -> None:
    lab = Lab(sharing())
    first = wide(lab, gpus=2)
    await lab.pass_time(50)
    second = wide(lab, gpus=2)
    await lab.pass_time(1000)
    together_s = 50 / HALF
    assert ran_s(lab, first) == about(50 + together_s)
    assert ran_s(lab, second) == about(together_s + 50)


async def test_three_on_the_same_links_until_the_first_is_done() -> None:
    lab = Lab(sharing())
    short, *long = wide(lab, gpus=2, duration_s=10), wide(lab, gpus=2), wide(lab, gpus=2)
    await lab.pass_time(1000)
    short_s = 10 / factor("vgg16", 3)
    assert ran_s(lab, short) == about(short_s)
    assert [ran_s(lab, key) for key in long] == [about(short_s + 90 / HALF)] * 2


async def test_a_job_that_trains_nothing_slows_no_other_down() -> None:
    lab = Lab(sharing())
    first, idle = wide(lab), lab.sbatch(request=sbatch_request(nodes=2), duration_s=100)
    on_one = lab.sbatch(gpus=4, duration_s=100, model="vgg16")
    await lab.pass_time(101)
    assert [ran_s(lab, key) for key in (first, idle, on_one)] == [about(100)] * 3


async def test_a_suspended_job_frees_the_links_and_keeps_its_progress() -> None:
    pair = Pair()
    await pair.lab.pass_time(40)
    pair.lab.slurm.suspend(pair.first.job_id)
    await pair.lab.pass_time(30)
    assert pair.lab.nodes(pair.first) == ("n1", "n2")
    pair.lab.slurm.resume(pair.first.job_id)
    await pair.lab.pass_time(300)
    together_s = (100 - 40 * HALF - 30) / HALF
    assert pair.ran_s(pair.second) == about(70 + together_s)
    first_left = 100 - (40 + together_s) * HALF
    assert pair.ran_s(pair.first) == about(70 + together_s + first_left)


@pytest.mark.parametrize("how", ["requeue", "cancel", "signal", "lost"])
async def test_a_job_that_ends_frees_the_links_at_once(how: str) -> None:
    """Also one that survives TERM, and holds its GPUs until it is killed."""
    pair = Pair(traps=frozenset({"TERM"}))
    await pair.lab.pass_time(40)
    match how:
        case "requeue":
            pair.lab.slurm.requeue(pair.second.job_id, held=True)
        case "cancel":
            pair.lab.slurm.cancel(pair.second.job_id)
        case "signal":
            await pair.lab.client.signal([pair.second], "USR1")
        case "lost":
            pair.lab.slurm.crash_slurmctld(lose_newest=1)
    await pair.lab.pass_time(300)
    assert pair.ran_s(pair.first) == about(40 + 100 - 40 * HALF)


async def test_a_node_that_fails_takes_the_work_of_its_jobs_with_it() -> None:
    pair = Pair()
    await pair.lab.pass_time(40)
    pair.lab.slurm.node_down("n1")
    pair.lab.slurm.node_resume("n1")
    pair.lab.slurm.cancel(pair.second.job_id)
    await pair.lab.pass_time(300)
    assert (pair.lab.job(pair.first).restarts, pair.ran_s(pair.first)) == (1, about(100))


async def test_a_requeued_job_does_all_of_its_work_again() -> None:
    pair = Pair()
    await pair.lab.pass_time(40)
    pair.lab.slurm.requeue(pair.first.job_id)
    await pair.lab.pass_time(500)
    assert [start - pair.lab.start_s for start, _ in pair.lab.job(pair.first).starts] == [0, 41]
    left_s = 100 - 40 * HALF - 1  # the second was alone until the first began anew
    assert pair.ran_s(pair.second) == about(41 + left_s / HALF)
    assert pair.ran_s(pair.first) == about(left_s / HALF + 100 - left_s)


async def test_time_limits_are_those_of_the_wall() -> None:
    pair = Pair(time_limit_s=120)
    await pair.lab.pass_time(130)
    assert {pair.lab.state(pair.first), pair.lab.state(pair.second)} == {"TIMEOUT"}
    assert pair.ran_s(pair.first) == about(120)


async def test_without_models_of_slowdown_no_job_is_slowed_down() -> None:
    lab = Lab(ClusterDescription(nodes=(NodeDescription(names="n[1-2]"),), delays=NO_DELAYS))
    pair = Pair(lab)
    await lab.pass_time(101)
    assert (pair.ran_s(pair.first), pair.ran_s(pair.second)) == (100, 100)


async def test_work_without_end_ends_at_its_limit_only() -> None:
    lab = Lab(ClusterDescription(delays=Delays(min_job_age_s=1e9)))
    endless, limited = lab.sbatch(duration_s=float("inf")), lab.sbatch(duration_s=float("inf"), time_limit_s=60)
    await lab.pass_time(1e6)
    assert lab.phase(endless) is Phase.RUNNING
    assert lab.state(limited) == "TIMEOUT"


async def test_a_cluster_without_gpus_runs_jobs() -> None:
    lab = Lab(ClusterDescription(nodes=(NodeDescription(names="c[1-2]", gpus=0),)))
    key = lab.sbatch(request=sbatch_request(ntasks=3), duration_s=10)
    await lab.pass_time(20)
    assert lab.state(key) == "COMPLETED"


async def test_an_end_that_comes_sooner_wakes_a_sleeper_that_waits_for_the_old_one() -> None:
    """Alone and asleep until 100 / HALF s, the cluster must hear that the end of the second has moved."""
    ends: list[tuple[str, float]] = []
    lab: Lab = Lab(sharing(), wake=lambda line: ends.append((line, lab.clock.now() - lab.start_s)))
    runner = asyncio.create_task(lab.slurm.run())
    try:
        pair = Pair(lab)
        await lab.pass_time(40)
        lab.slurm.suspend(pair.first.job_id)
        await lab.pass_time(60)  # the second has 100 - 40 HALF left at 40 s
        assert not [line for line, _ in ends if line.startswith("end")]
        await lab.pass_time(100)
    finally:
        runner.cancel()
        await asyncio.gather(runner, return_exceptions=True)
    assert ends[-1] == (f"end {pair.second.job_id}", about(140 - 40 * HALF))


async def _day(seed: int, looks: int) -> list[object]:
    """A day of jobs and accidents with slowdown, looked at so many times between any two things that are done to it."""
    rng = random.Random(seed)
    description = ClusterDescription(
        slowdown=("max-min:sharing=duty", "pair-table"),
        nodes=(NodeDescription(names="n[1-2]", rack="r1"), NodeDescription(names="n[3-4]", rack="r2")),
        network={"nic_gbs": 1.0, "uplink_gbs": 0.5},
        delays=Delays(requeue_s=5, min_job_age_s=1e9),
    )
    lab = Lab(description)
    for _ in range(70):
        with suppress(SlurmError):
            lab.sbatch(
                gpus=rng.choice((1, 2, 4, 8)),
                nodes=rng.choice((1, 2, 3)),
                duration_s=rng.uniform(1, 200),
                model=rng.choice(("vgg16", "MoE", "FSDP", "")),
                time_limit_s=rng.choice((None, 300)),
            )
            known = (await lab.client.snapshot()).jobs
            getattr(lab.slurm, rng.choice(("suspend", "resume", "requeue", "cancel")))(rng.choice(known).key.job_id)
        with suppress(SlurmError):
            getattr(lab.slurm, rng.choice(("node_down", "node_resume", "node_resume")))(f"n{rng.randint(1, 4)}")
        step_s = rng.uniform(0, 60)
        at_s = lab.clock.now()
        for look in range(1, looks + 1):
            await lab.pass_time(at_s + step_s * look / looks - lab.clock.now())
            await lab.client.snapshot()
    await lab.pass_time(lab.start_s + 1e5 - lab.clock.now())
    jobs = (await lab.client.snapshot()).jobs
    return [(job.key, job.state, job.start_time_s, job.end_time_s, lab.job(job.key).starts) for job in jobs]


@pytest.mark.parametrize("seed", range(3))
async def test_one_jump_of_the_clock_is_as_good_as_many_steps(seed: int) -> None:
    seldom, often = await _day(seed, looks=1), await _day(seed, looks=5)
    assert len(seldom) > 40
    assert seldom == often


@pytest.mark.parametrize(
    ("description", "problem"),
    [
        (
            {"slowdown": ("max-mim",)},
            r"^slowdown: there is no slowdown model 'max-mim'; take none, or some of .*max-min",
        ),
        ({"slowdown": ("max-min", "none")}, "^slowdown: none cannot be combined with other"),
        ({"network": {"kind": "ring"}}, r"^network\.kind: 'ring' is not a kind of network; take one of flat"),
        ({"network": {"nic_gbs": -1}}, r"^network\.nic_gbs: -1 is not a positive number"),
        ({"slowdown": ("max-min",), "profiles": Path("/nowhere.json")}, r"^profiles: /nowhere\.json: cannot be read"),
        ({"slowdown": ("locality",), "nodes": (NodeDescription(names="c1", gpus=0),)}, "^slowdown: no node has GPUs"),
    ],
)
def test_descriptions_that_cannot_be_modelled(description: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        EmbeddedSlurm(ClusterDescription(**description))  # type: ignore[arg-type]


def test_a_controller_of_a_real_slurm_imports_no_simulator() -> None:
    code = (
        "import json, sys; import controller.daemon.cli, controller.daemon.assemble, controller.cli.app, controller.slurm.select; "
        "print(json.dumps([name for name in sys.modules if name.partition('.')[0] == 'simulator']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == []


async def test_links_between_the_gpus_of_a_job_slow_it_down_as_slurm_has_allocated_them() -> None:
    # given a node with NVLink in groups of four, where a job of one GPU leaves three of the first group
    node = NodeDescription(names="n1", gpus=8, switches=4, nvlink=4)
    inside = {"nvlink_gbs": 50.0, "pcie_gbs": 12.0, "socket_gbs": 8.0}
    lab = Lab(ClusterDescription(nodes=(node,), slowdown=("gpu-links",), network=inside, delays=NO_DELAYS))
    lab.sbatch(gpus=1, duration_s=1000, model="VGG-16")
    two = lab.sbatch(gpus=2, duration_s=100, model="VGG-16")
    # when a job of four gets the lowest free GPUs, on both sockets
    four = lab.sbatch(gpus=4, duration_s=100, model="VGG-16")
    await lab.pass_time(900)
    # then only that one is slower, by the link between sockets
    profile = paper_profiles().of("vgg16")
    sent = 2 * 3 / 4 * profile.bytes / 1e9
    assert ran_s(lab, two) == about(100)
    assert ran_s(lab, four) == about(100 * profile.step_s(sent / 8.0) / profile.step_s(sent / 50.0))
