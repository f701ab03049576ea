"""On a real Slurm: whatever breaks during preemptions, each job ends once, and continues from its last acknowledged checkpoint."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.preemption.returning import STARTS_S, STEPS, Losses, Returning, returning

pytestmark = pytest.mark.timeout(900)

LONG = 400
"""Steps of a job that is to be preempted several times."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Returning]:
    with returning() as found:
        yield found


@pytest.fixture(scope="module")
def whole(cluster: Returning) -> Losses:
    """Losses of a job that is left alone; those of the first STEPS steps are those of a shorter job too."""
    return cluster.begin_whole(LONG)


@pytest.fixture(autouse=True)
def mended(cluster: Returning) -> Iterator[None]:
    yield
    cluster.clear()


def finished(
    cluster: Returning, name: str, job: str, whole: Losses, steps: int = STEPS, *, forgets: bool = False
) -> None:
    """Check that the job completed once, made every step with the right loss, and lost none after an acknowledged checkpoint.

    `forgets`: Slurm may have lost changes that it had not saved, such as a start; then it starts the job once more. It takes
    minutes until Slurm misses a job that its nodes have ended, and Slurm holds a job that already runs where it starts it.
    """
    cluster.hurry(name)
    if forgets:
        cluster.until(lambda: _ended_with_an_operator(cluster, job), f"{name} has ended", 600.0)
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S + steps)
    cluster.check_losses(name, {step: loss for step, loss in whole().items() if step < steps})
    began = cluster.began(name)
    assert began[0] == 0
    counted = int(cluster.show(job)["Restarts"]) + 1
    # a run that was stopped before its first step has recorded nothing
    assert len(began) <= counted or forgets
    came_back = [row for row in cluster.preemptions(job) if row["stage"] in {"started", "resumed"}]
    acknowledged = [row["step"] for row in came_back if row["step"] is not None]
    for step in acknowledged:
        assert any(first >= step for first in began), (acknowledged, began)
    assert began == sorted(began), "no run began before the one before it"


def _ended_with_an_operator(cluster: Returning, job: str) -> bool:
    """Return whether the job has completed; resume nodes that Slurm has drained for a job that it forgot, as an operator would."""
    if "launch_failed" in cluster.show(job).get("Reason", ""):
        names = [node for node, state in cluster.cluster.node_states().items() if state.startswith("drain")]
        if names:
            cluster.cluster.run("scontrol", "update", f"nodename={','.join(names)}", "state=resume")
        cluster.cluster.run("scontrol", "release", job)
    return cluster.state(job) == "COMPLETED"


# --- killed at any moment


def kill_controller(cluster: Returning, rng: random.Random) -> None:
    cluster.headway.stop("controller", signal.SIGKILL)
    time.sleep(rng.uniform(0.0, 1.5))
    cluster.headway.start_controller()


def kill_agent(cluster: Returning, rng: random.Random) -> None:
    node = rng.choice(list(cluster.cluster.node_names))
    cluster.headway.agents.stop(cluster.cluster, node, signal.SIGKILL)
    time.sleep(rng.uniform(0.0, 1.5))
    cluster.headway.agents.start(cluster.cluster, node)


def restart_slurmctld(cluster: Returning, rng: random.Random) -> None:
    cluster.cluster.stop_slurmctld()
    time.sleep(rng.uniform(0.0, 1.5))
    cluster.cluster.start_slurmctld()


def crash_slurmctld(cluster: Returning, rng: random.Random) -> None:
    # It writes its state down some seconds after it has changed: what is younger is lost with it, which is Slurm's own.
    cluster.cluster.kill_slurmctld()
    time.sleep(rng.uniform(0.0, 1.5))
    cluster.cluster.start_slurmctld()


def cut_network(cluster: Returning, rng: random.Random) -> None:
    node = rng.choice(list(cluster.cluster.node_names))
    way = ("blackhole", f"{cluster.cluster.host_address}/32")
    cluster.cluster.run_on(node, "ip", "route", "add", *way)
    time.sleep(rng.uniform(2.0, 10.0))
    cluster.cluster.run_on(node, "ip", "route", "del", *way)


@pytest.mark.parametrize(
    ("breaks", "seed"),
    [
        (kill_controller, 1),
        pytest.param(kill_controller, 2, marks=pytest.mark.slow),
        pytest.param(kill_agent, 1, marks=pytest.mark.slow),
        pytest.param(kill_agent, 2, marks=pytest.mark.slow),
        pytest.param(restart_slurmctld, 1, marks=pytest.mark.slow),
        pytest.param(restart_slurmctld, 2, marks=pytest.mark.slow),
        pytest.param(crash_slurmctld, 1, marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
        pytest.param(crash_slurmctld, 2, marks=[pytest.mark.slow, pytest.mark.timeout(1500)]),
        pytest.param(cut_network, 1, marks=pytest.mark.slow),
        pytest.param(cut_network, 2, marks=pytest.mark.slow),
    ],
)
def test_broken_at_any_moment_of_a_preemption_every_job_ends_once(
    cluster: Returning, whole: Losses, breaks: Callable[[Returning, random.Random], None], seed: int
) -> None:
    # Given jobs that train
    rng = random.Random(f"{breaks.__name__}{seed}")
    names = [f"{breaks.__name__}_{seed}_{number}" for number in range(2)]
    jobs = {name: cluster.begin(name, steps=LONG) for name in names}
    for name in names:
        cluster.until_trains(name)

    # When something breaks at some moment of their preemptions
    for _ in range(3):
        job = jobs[rng.choice(names)]
        cluster.headway.headway(rng.choice(["preempt", "move"]), job, check=False)
        time.sleep(rng.uniform(0.0, 4.0))
        breaks(cluster, rng)

    # Then all end as if nothing had broken
    for name, job in jobs.items():
        finished(cluster, name, job, whole, LONG, forgets=breaks is crash_slurmctld)


# --- jobs and their files


def test_a_rank_killed_while_it_saves(cluster: Returning, whole: Losses) -> None:
    # Given a job whose script starts its ranks again when one of them is gone, with a checkpoint
    again = f'srun --kill-on-bad-exit python returning_job.py "$SLURM_JOB_NAME" {STEPS} 0.2 ||'
    job = cluster.begin("killed", before=f"{again} \\")
    cluster.until_trains("killed")
    cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
    (saved,) = cluster.until(lambda: cluster.saved_steps("killed"), "a checkpoint")

    # When one is killed that has been asked to save, and has not yet
    rank = cluster.rank_on(max(cluster.nodes(job)), "killed")
    rank.send(signal.SIGSTOP)
    cluster.headway.headway("preempt", job)
    rank.send(signal.SIGKILL)

    # Then it is called off, and the ranks begin again where that checkpoint was
    assert cluster.until_stage(job, "called off")["problem"]
    cluster.hurry("killed")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S + STEPS)
    assert (cluster.began("killed"), cluster.show(job)["Restarts"]) == ([0, saved], "0")
    cluster.check_losses("killed", {step: loss for step, loss in whole().items() if step < STEPS})


@pytest.mark.parametrize("what", ["corrupt", pytest.param("truncated", marks=pytest.mark.slow)])
def test_a_checkpoint_damaged_while_its_job_waits_is_replaced_by_the_one_before(
    cluster: Returning, whole: Losses, what: str
) -> None:
    # Given a job with a checkpoint, that is stopped and finds no room
    name = f"damaged_{what}"
    job = cluster.begin(name)
    cluster.until_trains(name)
    cluster.cluster.run("scancel", "--signal=USR1", "--full", job)
    cluster.until(lambda: cluster.saved_steps(name), "a checkpoint")
    with cluster.no_room():
        cluster.headway.headway("preempt", job)
        row = cluster.until_stage(job, "stopped")
        earlier, newest = cluster.saved_steps(name)
        assert newest == row["step"] > earlier

        # When its newest checkpoint is damaged
        (folder,) = cluster.cluster.files.work.glob(f"checkpoints/*-{name}/step-{newest:09d}-*")
        _damage(folder, what)

    # Then it continues from the one before
    finished_from(cluster, name, job, whole, earlier)


def _damage(folder: Path, what: str) -> None:
    path = folder / ("rank-1.safetensors" if what == "corrupt" else "manifest.json")
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + (b"\0" * 8 + content[half + 8 :] if what == "corrupt" else b""))


def finished_from(cluster: Returning, name: str, job: str, whole: Losses, step: int) -> None:
    cluster.hurry(name)
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S + STEPS)
    assert cluster.began(name) == [0, step]
    cluster.check_losses(name, {step: loss for step, loss in whole().items() if step < STEPS})


def test_a_full_disk_calls_the_preemption_off(cluster: Returning, whole: Losses) -> None:
    # Files of its ranks may not grow beyond 8 KiB: its checkpoints do not fit. Its log, which bash and srun write, may be longer
    job = cluster.begin("full", before="printf '%09000d\\n' 0", srun="srun prlimit --fsize=8192")
    cluster.until_trains("full")
    cluster.headway.headway("preempt", job)
    row = cluster.until_stage(job, "called off")
    assert "could not write" in row["problem"]
    cluster.hurry("full")
    cluster.until_state(job, "COMPLETED", timeout_s=STARTS_S + STEPS)
    assert cluster.began("full") == [0]
    cluster.check_losses("full", {step: loss for step, loss in whole().items() if step < STEPS})


@pytest.mark.slow
def test_a_node_that_crashes_while_its_job_saves(cluster: Returning, whole: Losses) -> None:
    # Given a job that cannot save, because one of its ranks hangs
    job = cluster.begin("crashed")
    cluster.until_trains("crashed")
    node = max(cluster.nodes(job))
    cluster.rank_on(node, "crashed").send(signal.SIGSTOP)
    cluster.headway.headway("preempt", job)

    # When that rank's node loses its power
    with cluster.crashed(node):
        cluster.until(lambda: cluster.show(job).get("Restarts") == "1", "Slurm requeues it", 120)

        # Then it is placed on others, and begins anew, as there is no checkpoint
        cluster.until_began("crashed", 2)
        assert node not in cluster.nodes(job)
        finished(cluster, "crashed", job, whole)
    assert cluster.until_stage(job, "over", "called off", "resumed")


def test_a_job_that_ignores_the_signal_trains_on(cluster: Returning) -> None:
    job = cluster.submit(
        "#!/bin/sh\ntrap : USR1\nuntil [ -e $SLURM_JOB_ID.end ]; do sleep 0.2; done\n",
        "--gpus=1",
        "--comment=headway=preemptible",
        "--output=/dev/null",
    )
    cluster.until_state(job, "RUNNING")
    cluster.until_known(job)
    cluster.until(lambda: not cluster.headway.headway("preempt", job, "--within", "3", check=False).returncode, "asked")
    assert cluster.until_stage(job, "called off")["problem"]
    (cluster.cluster.files.work / f"{job}.end").touch()
    cluster.until_state(job, "COMPLETED", timeout_s=60)
    assert cluster.show(job)["Restarts"] == "0"


@pytest.mark.slow
def test_a_job_that_traps_term_is_killed_and_continues(cluster: Returning, whole: Losses) -> None:
    job = cluster.begin("stubborn", before="trap '' TERM")
    cluster.until_trains("stubborn")
    cluster.headway.headway("move", job)
    cluster.until_stage(job, "resumed", timeout_s=STARTS_S)
    finished(cluster, "stubborn", job, whole)


@pytest.mark.slow
def test_requeued_by_its_user_while_it_saves(cluster: Returning, whole: Losses) -> None:
    job = cluster.begin("twice")
    cluster.until_trains("twice")
    cluster.rank_on(max(cluster.nodes(job)), "twice").send(signal.SIGSTOP)  # until then it has not saved
    cluster.headway.headway("preempt", job)
    cluster.cluster.run("scontrol", "requeue", job, check=False)
    finished(cluster, "twice", job, whole)
    assert int(cluster.show(job)["Restarts"]) == 1
