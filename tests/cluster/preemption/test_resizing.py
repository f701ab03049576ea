"""On a real Slurm: a resized job runs again with the tasks and GPUs of its new size, also in its environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from slurm.demo.run import jobpython
from tests.cluster.agents.training import Training
from tests.cluster.live import USER, Live, live

pytestmark = pytest.mark.timeout(600)

SCRIPT = """#!/bin/bash
#SBATCH --requeue --open-mode=append --output=job-%j.log --comment=headway=preemptible
trap 'scontrol requeue $SLURM_JOB_ID' USR1
run=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
env > env.$run
srun sh -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SLURM_NTASKS $SLURM_NTASKS_PER_NODE' > tasks.$run 2>&1
touch ready.$run
while true; do sleep 0.2; done
"""


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live() as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()


class Job:
    """One job, with the files that it has written."""

    def __init__(self, world: Live, job_id: str) -> None:
        self.world = world
        self.id = job_id
        self.run = 0
        self.until_ready()

    def until_ready(self) -> None:
        ready = self.world.cluster.files.work / f"ready.{self.id}.{self.run}"
        self.world.until(ready.exists, f"run {self.run} of {self.id}: {self.world.show(self.id)}", 120)
        self.world.until(
            lambda: self.facts().get("preemptible") == "signal", f"its agents see that {self.id} heeds USR1"
        )

    def facts(self) -> dict[str, str]:
        """Return the facts of `headway why`."""
        return dict(self.world.headway.ask("why", self.id)["facts"])

    def resize(self, gpus: int) -> None:
        self.world.until_seen_running(self.id)
        self.world.headway.headway("resize", self.id, "--gpus", str(gpus))
        self.run += 1
        self.until_ready()

    def said(self, file: str) -> str:
        return (self.world.cluster.files.work / f"{file}.{self.id}.{self.run}").read_text()

    @property
    def env(self) -> dict[str, str]:
        """Slurm's variables in the environment of the batch script."""
        return dict(line.split("=", 1) for line in self.said("env").splitlines() if line.startswith("SLURM"))

    @property
    def tasks(self) -> list[tuple[int, int]]:
        """(tasks, GPUs that each of them sees) of every node, largest first."""
        lines = [line.split() for line in self.said("tasks").splitlines()]
        counts = Counter((words[0], len(words[1].split(","))) for words in lines)
        assert {int(words[2]) for words in lines} == {len(lines)}, lines
        return sorted(((number, gpus) for (_, gpus), number in counts.items()), reverse=True)

    def size(self) -> dict[str, int]:
        """Return the size of the job in its environment."""
        names = ("NTASKS", "NPROCS", "NTASKS_PER_NODE", "GPUS", "GPUS_PER_NODE", "CPUS_PER_TASK", "MEM_PER_NODE")
        return {name: int(self.env[f"SLURM_{name}"]) for name in names if f"SLURM_{name}" in self.env}


def submit(world: Live, *options: str) -> Job:
    argv = ("sbatch", "--parsable", *options)
    return Job(world, world.cluster.run(*argv, stdin=SCRIPT, user=USER).stdout.strip())


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (
            "-N2 --gpus-per-node=2 --ntasks-per-node=2",
            {
                0: ([(2, 2)] * 2, {"NTASKS": 4, "NPROCS": 4, "NTASKS_PER_NODE": 2, "GPUS_PER_NODE": 2}),
                2: ([(2, 2)], {"NTASKS": 2, "NPROCS": 2, "NTASKS_PER_NODE": 2, "GPUS_PER_NODE": 2}),
                8: ([(2, 2)] * 4, {"NTASKS": 8, "NPROCS": 8, "NTASKS_PER_NODE": 2, "GPUS_PER_NODE": 2}),
            },
        ),
        (
            "--gpus=4 -n4 -c2",
            {
                0: ([(4, 4)], {"NTASKS": 4, "NPROCS": 4, "GPUS": 4, "CPUS_PER_TASK": 2}),
                2: ([(2, 2)], {"NTASKS": 2, "NPROCS": 2, "GPUS": 2, "CPUS_PER_TASK": 2}),
                16: ([(8, 8)] * 2, {"NTASKS": 16, "NPROCS": 16, "GPUS": 16, "CPUS_PER_TASK": 2}),
            },
        ),
        (
            "--gpus-per-node=4 -N1 -c8 --mem=4000",
            {
                0: ([(1, 4)], {"GPUS_PER_NODE": 4, "CPUS_PER_TASK": 8, "MEM_PER_NODE": 4000}),
                2: ([(1, 2)], {"GPUS_PER_NODE": 2, "CPUS_PER_TASK": 4, "MEM_PER_NODE": 2000}),
                12: ([(1, 4)] * 3, {"GPUS_PER_NODE": 4, "CPUS_PER_TASK": 8, "MEM_PER_NODE": 4000}),
            },
        ),
        (
            "-n2 --gpus-per-task=2",
            {
                0: ([(2, 2)], {"NTASKS": 2, "NPROCS": 2}),
                2: ([(1, 2)], {"NTASKS": 1, "NPROCS": 1}),
                12: ([(2, 2)] * 3, {"NTASKS": 6, "NPROCS": 6}),
            },
        ),
        (
            "-N2 --gpus=4 --ntasks-per-node=1",
            {
                2: ([(1, 2)], {"NTASKS": 1, "NPROCS": 1, "NTASKS_PER_NODE": 1, "GPUS": 2}),
                8: ([(1, 2)] * 4, {"NTASKS": 4, "NPROCS": 4, "NTASKS_PER_NODE": 1, "GPUS": 8}),
                4: ([(1, 2)] * 2, {"NTASKS": 2, "NPROCS": 2, "NTASKS_PER_NODE": 1, "GPUS": 4}),
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tasks_and_environment_are_those_of_the_new_size(
    world: Live, options: str, runs: dict[int, tuple[list[tuple[int, int]], dict[str, int]]]
) -> None:
    job = submit(world, *options.split())
    for gpus, (tasks, size) in runs.items():
        if gpus:
            job.resize(gpus)
        assert (job.tasks, job.size()) == (tasks, size), job.said("tasks")
        total = sum(world.nodes(job.id).values())
        assert total == gpus or not gpus
    assert int(world.show(job.id)["Restarts"]) == len([gpus for gpus in runs if gpus])


@pytest.mark.parametrize(
    "options",
    ["-N2 --ntasks-per-node=2 --gpus-per-node=1", "-n3 --ntasks-per-node=2 -N2 --gres=gpu:1", "--exclusive --gpus-per-node=1 -N1"],
)  # fmt: skip
def test_a_job_that_is_only_moved_has_the_environment_that_slurm_gives_it(world: Live, options: str) -> None:
    job = submit(world, *options.split())
    before = job.env
    world.until_seen_running(job.id)
    world.headway.headway("move", job.id, "--off", min(world.nodes(job.id)))
    job.run += 1
    job.until_ready()
    after = job.env
    size = {
        name for name in before if name.startswith(("SLURM_N", "SLURM_GPUS_PER", "SLURM_GPUS")) and "LIST" not in name
    }
    assert {name: before[name] for name in size - {"SLURM_NODEID"}} == {
        name: after[name] for name in size - {"SLURM_NODEID"}
    }


def test_an_impossible_size_is_refused_and_the_job_runs_on(world: Live) -> None:
    job = submit(world, "-N2", "--gpus-per-node=2", "--ntasks-per-node=2")
    done = world.headway.headway("resize", job.id, "--gpus", "3", check=False)
    assert done.returncode != 0
    assert "2, 4, 6, 8" in done.stdout + done.stderr
    assert world.state(job.id) == "RUNNING"


# --- torchrun

RANK = """import os, sys
with open(sys.argv[1], "a") as ranks:
    ranks.write(f"{os.environ['RANK']} {os.environ['WORLD_SIZE']} {os.environ['LOCAL_WORLD_SIZE']} {os.uname().nodename}\\n")
"""
TORCHRUN = """#!/bin/bash
#SBATCH -N2 --gpus-per-node=2 --ntasks-per-node=1 --requeue --output=job-%j.log --comment=headway=preemptible
trap 'scontrol requeue $SLURM_JOB_ID' USR1
run=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
env > env.$run
srun python -m torch.distributed.run --nnodes=$SLURM_NNODES --nproc-per-node=$SLURM_GPUS_ON_NODE --rdzv-backend=c10d \
    --rdzv-endpoint=$head:$((20000 + SLURM_JOB_ID)) --rdzv-id=$run rank.py ranks.$run
touch ready.$run
while true; do sleep 0.2; done
"""


@pytest.mark.slow
def test_torchrun_has_a_world_of_the_new_size(world: Live) -> None:
    pytest.importorskip("torch")
    jobpython.open_to_users(world.cluster)
    (world.cluster.files.work / "rank.py").write_text(RANK)
    job = Job(world, Training(world.cluster, world.headway).submit(TORCHRUN))
    for gpus, nodes in ((0, 2), (2, 1), (8, 4)):
        if gpus:
            job.resize(gpus)
        ranks = [line.split() for line in job.said("ranks").splitlines()]
        assert sorted(int(words[0]) for words in ranks) == list(range(2 * nodes))
        assert {(words[1], words[2]) for words in ranks} == {(str(2 * nodes), "2")}
        assert {words[3] for words in ranks} == set(world.nodes(job.id))
