"""Node agents on a real Slurm measure real DDP jobs on shaped links, whose scripts are unchanged."""

from __future__ import annotations

import importlib.util
import re
import signal
import time
from collections.abc import Iterator
from statistics import median

import pytest

from controller.profiles.ideal import ideal_of
from controller.profiles.sensitivity import IdealSource, Priors, sensitivity
from controller.profiles.sightings import ProfileRow
from controller.profiles.windows import Sample, Throughput
from tests.cluster.agents.training import Training, step_ended_s, training

pytestmark = pytest.mark.timeout(600)

RATE = "200mbit"
MEGABYTES = 8
"""Gradients of a step: 0.34 s on the network at that rate, and about 0.02 s of a core, so that a step waits for the network."""
NETWORK_S = 0.34
"""Time of a step on a network that no other job uses, in seconds."""
MOST_LOST = 2.5
"""Times that a step may take longer beside one other job, with what a busy machine adds."""
LEAST_STEPS = 5
"""Smallest number of steps in a window that shows a pace: a job that has just begun, or is being profiled, may make fewer."""
SOON_S = 180.0
"""Longest time for an expected event on a busy machine, where the start of PyTorch alone has taken a minute."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Training]:
    """A cluster with agents, on which the job "first" trains on n1 and n2 until the end."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the jobs train with PyTorch: `make setup` installs it")
    with training(RATE) as found:
        yield found
        agents = [found.cluster.program_on(node, "headway-agent") for node in found.cluster.node_names]
    assert all(agent is not None for agent in agents)
    assert not any(agent.alive() for agent in agents if agent is not None), "agents end with their nodes"


@pytest.fixture(scope="module")
def first(cluster: Training) -> int:
    return cluster.train("first", "n[1-2]", megabytes=MEGABYTES)


# --- what a job finds in its environment


def test_the_users_own_python_path_stays_behind_ours(cluster: Training) -> None:
    # Given a user with modules of their own, and a script that changes where they are
    show = "sh -c 'echo \"$SLURM_STEP_ID $PYTHONPATH $HEADWAY_JOB_SOCKET\"'"
    job = cluster.submit(
        f"#!/bin/sh\n{show}\nexport PYTHONPATH=/later\nsrun {show}\n",
        "--gpus=1",
        "--output=path.log",
        PYTHONPATH="/own",
    )
    unset = cluster.submit(f"#!/bin/sh\n{show}\n", "--gpus=1", "--output=unset.log")

    # Then batch script and tasks find both, ours first
    ours, socket = f"{cluster.headway.job_side}:{cluster.headway.job_side}/before_2_5", cluster.headway.job_socket
    cluster.until_state(job, "COMPLETED")
    assert cluster.said("path.log").splitlines() == [f" {ours}:/own {socket}", f"0 {ours}:/later {socket}"]
    cluster.until_state(unset, "COMPLETED")
    assert cluster.said("unset.log") == f" {ours} {socket}\n"


@pytest.mark.parametrize(
    "options", [["--gpus=1", "--comment=my run, headway=off"], ["--gpus=1", "--export=ALL,HEADWAY_PROFILE=off"], []]
)
def test_jobs_that_are_not_measured_can_import_headway_job_too(cluster: Training, options: list[str]) -> None:
    job = cluster.submit(
        "#!/bin/sh\nenv\nsrun env\n", *options, "--output=off-%j.log", SBATCH_EXPORT="ALL", PYTHONPATH="/own"
    )

    cluster.until_state(job, "COMPLETED")
    seen = cluster.said(f"off-{job}.log")
    assert "HEADWAY_JOB_SOCKET" not in seen
    ours = f"{cluster.headway.job_side}:{cluster.headway.job_side}/before_2_5:/own"
    assert re.findall(r"^PYTHONPATH=(.*)$", seen, re.MULTILINE) == [ours, ours]


# --- measuring


def test_a_job_is_seen_with_its_speed_and_its_profile(cluster: Training, first: int) -> None:
    windows = cluster.until(lambda: telling(cluster, first), "a window of the first job", SOON_S)
    profiles = cluster.until(lambda: profiles_of(cluster, first), "a profile of the first job", SOON_S)

    # Then what the agents counted is what the job counted
    seen = windows[-1]
    assert (seen.trained.script, seen.shape.nodes, seen.nodes) == ("ddp_job.py", 2, ("n1", "n2"))
    assert seen.steps_per_s == pytest.approx(cluster.own_steps_per_s("first", seen), rel=0.1)
    # and a step is mostly communication, of as many bytes as the model has
    for profile in profiles:
        assert profile.trained.signature == seen.trained.signature != ""
        assert profile.kinds == {"all_reduce": MEGABYTES * 2**20}
        assert profile.exposed_s > profile.compute_s


def profiles_of(cluster: Training, job_id: int) -> list[ProfileRow]:
    with cluster.store() as store:
        return [profile for profile in store.profiles() if profile.run.job_id == job_id]


def test_jobs_on_one_pair_of_nodes_slow_each_other_down_and_others_do_not(cluster: Training, first: int) -> None:
    # Given a job that has the cluster for itself
    cluster.until(
        lambda: len(quiet_alone(cluster, first)) >= 2,
        "two windows of the first job alone, in most of which the machine did not stop it",
        SOON_S,
    )

    # When another comes to its nodes, and a third to the two others
    jobs = {"first": first}
    jobs["beside"] = cluster.train("beside", "n[1-2]", megabytes=MEGABYTES)
    jobs["apart"] = cluster.train("apart", "n[3-4]", megabytes=MEGABYTES)
    try:
        windows = cluster.until(lambda: shared_windows(cluster, jobs, 3), "windows of all three", 2 * SOON_S)
        # Then operators see who slows whom down
        cluster.until(lambda: operators_see(cluster, jobs), "what operators see")
    finally:  # the tests after this one have the first job alone
        cluster.cluster.run("scancel", str(jobs["beside"]), str(jobs["apart"]))

    # and each job's contention sensitivity is what it lost, by its own account: of its own speed alone, or of the others'
    alone = {name: own_speed_alone(cluster, name, jobs[name]) for name in ("first", "apart")}
    ideal = {**alone, "beside": median(alone.values())}
    paces = {name: own_pace(cluster, name, found) for name, found in windows.items()}
    lost = {name: ideal[name] / pace for name, pace in paces.items()}
    reported = {name: reported_sensitivity(cluster, found) for name, found in windows.items()}
    assert reported == pytest.approx(lost, rel=0.1)
    assert 0.85 * by_the_link(ideal["first"], paces["beside"]) < lost["first"] < MOST_LOST
    assert 0.85 * by_the_link(ideal["beside"], paces["first"]) < lost["beside"] < MOST_LOST
    assert alone["first"] / paces["apart"] < 1.1
    assert reported["apart"] < 1.1


def by_the_link(alone: float, neighbour: float) -> float:
    """Return how many times longer a step takes on a link that a neighbour uses, from its steps/s alone and the neighbour's.

    It is nearly 2 where both wait for the network alone; less where the machine is so busy that the neighbour waits for a core.
    """
    left = 1.0 - min(neighbour * NETWORK_S, 0.5)
    return 1.0 + alone * NETWORK_S * (1.0 / left - 1.0)


def own_speed_alone(cluster: Training, name: str, job_id: int) -> float:
    """Return the median steps/s of a job over its windows without neighbours, by its own account.

    Each job has its own: the machine may be busier while one of them is alone than while another is.
    """
    return median(cluster.own_steps_per_s(name, each) for each in cluster.windows(job_id) if each.alone)


def own_pace(cluster: Training, name: str, windows: list[Throughput]) -> float:
    """Return the steps/s of a job over these windows by its own account."""
    seconds = sum(each.steps / cluster.own_steps_per_s(name, each) for each in windows)
    return sum(each.steps for each in windows) / seconds


def operators_see(cluster: Training, jobs: dict[str, int]) -> bool:
    """Return whether operators see now that "beside" is the neighbour of the first job, which is slowed, and "apart" is not."""
    kinds = cluster.headway.ask("profile", "list")["kinds"]
    now = {row["job_id"]: row for kind in kinds for row in kind["running"]}
    first, apart = now[str(jobs["first"])], now[str(jobs["apart"])]
    return first["beside"] == [str(jobs["beside"])] and (first["sensitivity"] or 0) > 1.4 > (apart["sensitivity"] or 2)


def telling(cluster: Training, job_id: int) -> list[Throughput]:
    """Windows of a job that show a pace."""
    return [each for each in cluster.windows(job_id) if each.steps >= LEAST_STEPS]


def quiet_alone(cluster: Training, first: int) -> list[Throughput]:
    """Windows of the first job alone in which the machine did not stop it; none while they are not the most.

    Its ideal speed is the median of all.
    """
    found = [each for each in telling(cluster, first) if each.alone]
    quiet = [each for each in found if not cluster.was_paused("first", each)]
    return quiet if 2 * len(quiet) > len(found) else []


def shared_windows(cluster: Training, jobs: dict[str, int], count: int) -> dict[str, list[Throughput]] | None:
    """Windows in which all jobs trained throughout and the first shared its nodes; None when there are fewer than `count`.

    Those in which the machine stopped a job are left out: it lost more in them than its neighbours took from it.
    """
    found = {
        name: {each.start_s: each for each in telling(cluster, job) if not cluster.was_paused(name, each)}
        for name, job in jobs.items()
    }
    together = sorted(set.intersection(*(set(each) for each in found.values())))
    together = [start_s for start_s in together if not found["first"][start_s].alone]
    return {name: [each[at] for at in together] for name, each in found.items()} if len(together) >= count else None


def reported_sensitivity(cluster: Training, windows: list[Throughput]) -> float:
    """Contention sensitivity over these windows by the rule of the controller, with the best ideal in the store."""
    last = windows[-1]
    with cluster.store() as store:
        ideal = ideal_of(store, last.run.job_id, last.trained, last.shape, last.nodes, Priors())
    assert ideal is not None
    assert ideal.source in {IdealSource.ALONE, IdealSource.STORE}
    steps, seconds = (sum(each.steps for each in windows), sum(each.steps / each.steps_per_s for each in windows))
    found = sensitivity(steps / seconds, ideal)
    assert found is not None
    return found.value


# --- what breaks


def test_an_agent_that_is_killed_costs_the_job_nothing_and_sees_it_again(cluster: Training, first: int) -> None:
    before = cluster.until(
        lambda: [s for s in cluster.samples(first) if s.node == "n1" and s.steps], "samples", SOON_S
    )[-1]

    # When the agent dies, the job trains on, and an agent starts
    cluster.headway.agents.stop(cluster.cluster, "n1", signal.SIGKILL)
    trained = len(cluster.ended_s("first"))
    cluster.until(lambda: len(cluster.ended_s("first")) >= trained + 5, "steps without an agent")
    again_s = time.time()
    cluster.headway.agents.start(cluster.cluster, "n1")

    # Then it is seen again, with all its steps: those of the meantime included
    def seen_again() -> list[Sample]:
        return [s for s in cluster.samples(first, again_s) if s.node == "n1" and (s.steps or 0) > (before.steps or 0)]

    samples = cluster.until(seen_again, "the job is seen again", SOON_S)
    assert cluster.state(str(first)) == "RUNNING"
    check_counts(cluster, "first", samples)


def test_a_controller_that_is_killed_misses_nothing_and_counts_nothing_twice(cluster: Training, first: int) -> None:
    cluster.until(lambda: cluster.samples(first), "samples", SOON_S)
    killed_s = time.time()
    cluster.headway.stop("controller", signal.SIGKILL)
    trained = len(cluster.ended_s("first"))
    cluster.until(lambda: len(cluster.ended_s("first")) >= trained + 10, "steps without a controller")
    cluster.headway.start_controller()
    back_s = time.time()

    def reported() -> bool:
        return all(any(s.node == node for s in cluster.samples(first, back_s)) for node in ("n1", "n2"))

    cluster.until(reported, "both nodes report again", SOON_S)
    meanwhile = [s for s in cluster.samples(first, killed_s) if s.time_s < back_s]
    assert {sample.node for sample in meanwhile} == {"n1", "n2"}, "what was measured meanwhile came late, but came"
    assert all(lost == 0 for lost in cluster.lost_reports().values())
    samples = cluster.samples(first)
    assert len({(sample.node, sample.monotonic_ns) for sample in samples}) == len(samples)
    check_counts(cluster, "first", [sample for sample in meanwhile if sample.steps is not None])


def check_counts(cluster: Training, name: str, samples: list[Sample]) -> None:
    """Check that every sample has the steps that the job had made at its time, plus or minus one that is just being written."""
    for sample in samples:
        assert abs(sample.steps - cluster.steps_by(name, step_ended_s(sample) + 0.05)) <= 1, sample


def test_a_job_that_lies_about_its_id_is_stored_under_its_own(cluster: Training, first: int) -> None:
    # Given a job on another node that calls itself the first
    liar = cluster.train(
        "liar", "n4", megabytes=1, pause_s=0.1, how=f"env SLURM_JOB_ID={first} SLURM_JOBID={first} SLURM_STEP_ID=0"
    )

    samples = cluster.until(lambda: [s for s in cluster.samples(liar) if s.steps], "the liar is seen", SOON_S)
    cluster.cluster.run("scancel", str(liar))

    assert {sample.node for sample in samples} == {"n4"}
    assert {sample.node for sample in cluster.samples(first)} == {"n1", "n2"}
