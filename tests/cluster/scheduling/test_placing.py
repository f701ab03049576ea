"""On a real Slurm: jobs start on exactly the nodes that the policy chose, with its number of GPUs, for every form of request."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.live import Live, live

LONG_S = 600.0
"""Jobs of that length run until the end of their test."""


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live() as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()


def chosen(world: Live, job_id: str) -> dict[str, int]:
    """Return the decision of the policy, from `headway why`."""
    reported = world.headway.ask("why", job_id)
    pairs = (part.split(":") for part in reported["decisions"][0]["placement"].split(","))
    return {node: int(gpus) for node, gpus in pairs}


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        (("--gres=gpu:1",), [1]),
        (("--gres=gpu:8",), [8]),
        (("-N2", "--gres=gpu:4"), [4, 4]),
        (("-N3", "--gpus-per-node=8"), [8, 8, 8]),
        (("-N4", "--gpus-per-node=2"), [2, 2, 2, 2]),
        (("--gpus=5",), [5]),
        (("--gpus=16",), [8, 8]),
        (("--gpus=12",), [6, 6]),
        (("-N2", "--gpus=6"), [3, 3]),
        (("-n2", "--gpus-per-task=4"), [8]),
        (("-n6", "--gpus-per-task=4"), [8, 8, 8]),
        (("-N1-3", "--gres=gpu:2"), [2]),
        (("-n4", "--ntasks-per-node=2", "--gres=gpu:2"), [2, 2]),
        (("-n8", "--gpus=16"), [8, 8]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_job_runs_where_the_policy_put_it(world: Live, options: tuple[str, ...], counts: list[int]) -> None:
    # given another job that takes a part of a node, where there is room for both
    if len(counts) < 3:
        other = world.sbatch("--gres=gpu:3", "-w", "n3", seconds=LONG_S)
        world.until_state(other, "RUNNING")
    # when a user submits
    job = world.sbatch(*options, seconds=LONG_S)
    world.until_state(job, "RUNNING")
    # then Slurm runs it on the nodes of the decision, with their number of GPUs
    assert world.nodes(job) == chosen(world, job)
    assert sorted(world.nodes(job).values()) == counts


def test_a_job_whose_name_is_no_utf_8_stops_nothing(world: Live) -> None:
    # given a job with a name in Latin-1, in the queue of Slurm until its end is recorded
    named = world.sbatch("--gres=gpu:1", "-J", "caf\udce9", seconds=LONG_S)
    world.until_state(named, "RUNNING")
    shown = world.headway.ask("queue")["entries"]
    assert [row["name"] for row in shown if row["job_id"] == named] == [r"caf\xe9"]
    world.cluster.run("scancel", named)
    world.until_state(named, "CANCELLED")
    # when another one is submitted
    later = world.sbatch("--gres=gpu:1", seconds=LONG_S)
    # then it is placed
    world.until_state(later, "RUNNING")
    assert world.nodes(later) == chosen(world, later)


def test_best_fit_is_what_slurm_alone_would_not_choose(world: Live) -> None:
    # given a node with six of eight GPUs in use
    other = world.sbatch("--gres=gpu:6", "-w", "n4", seconds=LONG_S)
    world.until_state(other, "RUNNING")
    # when a job needs two
    job = world.sbatch("--gres=gpu:2", seconds=LONG_S)
    world.until_state(job, "RUNNING")
    # then it goes to where they fit best, not to the first node
    assert world.nodes(job) == {"n4": 2}


def num_running(world: Live, array: str) -> int:
    """Return the number of running tasks of an array, from one query: several queries may show successive tasks as parallel."""
    listed = world.cluster.run("squeue", "--noheader", "--array", f"--jobs={array}", "--states=RUNNING")
    return len(listed.stdout.splitlines())


def test_array_tasks_are_placed_one_by_one(world: Live) -> None:
    job = world.open_job("--array=0-5", "--gres=gpu:8")
    tasks = [f"{job}_{number}" for number in range(6)]
    world.until(lambda: num_running(world, job) == 4, "four tasks running")
    world.end(job)
    for task in tasks:
        world.until_state(task, "COMPLETED")
        assert len(world.headway.ask("why", task)["decisions"]) == 1


def test_an_array_throttle_is_kept(world: Live) -> None:
    job = world.sbatch("--array=0-3%1", "--gres=gpu:1", seconds=1)
    tasks = [f"{job}_{number}" for number in range(4)]
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, num_running(world, job))
        return all(world.state(task) == "COMPLETED" for task in tasks)

    world.until(done, "all tasks done", timeout_s=90)
    assert most == 1


def test_an_exclusive_job_has_its_node_alone(world: Live) -> None:
    first = world.sbatch("--gres=gpu:1", seconds=LONG_S)
    world.until_state(first, "RUNNING")
    alone = world.sbatch("--exclusive", "--gres=gpu:1", seconds=LONG_S)
    world.until_state(alone, "RUNNING")
    (node,) = world.nodes(alone)
    assert node not in world.nodes(first)
    later = world.sbatch("--gres=gpu:1", seconds=LONG_S)
    world.until_state(later, "RUNNING")
    assert node not in world.nodes(later)


def test_a_waiting_job_says_why_and_starts_when_there_is_room(world: Live) -> None:
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=300)
    world.until_state(blocker, "RUNNING")
    job = world.sbatch("--gres=gpu:8", seconds=1)
    world.until_known(job)
    assert world.headway.ask("why", job)["state"] == "waiting"
    sentence = world.headway.ask("why", job)["sentence"]
    assert "8" in sentence
    assert "GPU" in sentence
    world.cluster.run("scancel", blocker)
    world.until_state(job, "RUNNING", "COMPLETED")


def test_the_environment_of_a_divided_job_fits_its_nodes(world: Live) -> None:
    # given a job that asks for twelve GPUs in all, and leaves the nodes open
    out = world.cluster.files.work / "env.txt"
    script = f"srun sh -c 'echo $(hostname) $SLURM_GPUS_ON_NODE $SLURM_NNODES' > {out}"
    job = world.cluster.run(
        "sbatch", "--parsable", "--output=/dev/null", "--gpus=12", f"--wrap={script}"
    ).stdout.strip()
    world.until_state(job, "COMPLETED")
    # then srun inside it starts on both of its nodes
    lines = sorted(out.read_text().split("\n"))
    assert len([line for line in lines if line.endswith(" 6 2")]) == 2
