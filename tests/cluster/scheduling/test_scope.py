"""On a real Slurm: what Headway leaves alone, and what it honours."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import slurm
from slurm.minicluster.spec import PartitionSpec
from tests.birthmarks import without_birthmark
from tests.cluster.live import Live, live

PROFILE = Path(slurm.__file__).parent / "plugin" / "profile.d" / "headway.sh"
PATIENT = ("MessageTimeout=60", "BatchStartTimeout=60")
"""On a busy machine a slurmd may take more than the usual 10 s to accept a job: then Slurm puts the job, which is RUNNING already,
back into the queue, and it runs on other nodes, or two minutes later."""


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    spec = {
        "partitions": (PartitionSpec("dl"), PartitionSpec("other")),
        "features": {"n1": ("slow",), "n2": ("fast",), "n3": ("fast", "ib"), "n4": ("slow", "ib")},
        "extra_conf": PATIENT,
    }
    with live(spec=spec) as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    world.clear()


def mark(world: Live, job_id: str) -> str:
    return without_birthmark(world.show(job_id).get("AdminComment", ""))


@pytest.mark.parametrize("options", [("-p", "other", "--gres=gpu:1"), ("-n2",)], ids=lambda value: " ".join(value))
def test_jobs_outside_the_scope_are_never_held(world: Live, options: tuple[str, ...]) -> None:
    job = world.sbatch(*options, seconds=600)
    assert "headway" not in mark(world, job)
    world.until_state(job, "RUNNING")
    world.until_known(job)
    assert "not" in world.headway.ask("why", job)["sentence"]


def test_srun_and_salloc_pass_through(world: Live) -> None:
    done = world.cluster.run("srun", "--gres=gpu:1", "hostname", timeout=30)
    assert done.stdout.strip() in world.cluster.node_names
    done = world.cluster.run("salloc", "--gres=gpu:1", "true", timeout=30)
    assert done.returncode == 0


def test_het_jobs_pass_through(world: Live) -> None:
    job = world.sbatch("--gres=gpu:1", ":", "--gres=gpu:1", seconds=1)
    assert "headway" not in mark(world, f"{job}+0")
    world.until(lambda: world.state(f"{job}+0") in {"RUNNING", "COMPLETED"}, "het job runs")


def test_a_dependency_is_waited_for(world: Live) -> None:
    first = world.open_job("--gres=gpu:1")
    after = world.sbatch("--gres=gpu:1", f"--dependency=afterok:{first}", seconds=1)
    world.until_state(first, "RUNNING")
    world.until_known(after)
    assert world.state(after) == "PENDING"
    world.end(first)
    world.until_state(after, "RUNNING", "COMPLETED")
    assert world.state(first) == "COMPLETED"


def test_a_dependency_that_can_never_be_met_is_left_to_slurm(world: Live) -> None:
    failing = world.cluster.run(
        "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:1", "--wrap=false", user="daemon"
    ).stdout.strip()
    after = world.sbatch("--gres=gpu:1", f"--dependency=afterok:{failing}")
    world.until_state(failing, "FAILED")
    world.until(lambda: world.show(after).get("Reason") == "DependencyNeverSatisfied", "Slurm says so")


def test_a_begin_time_is_waited_for(world: Live) -> None:
    begun = time.time()
    job = world.sbatch("--gres=gpu:1", "--begin=now+4", seconds=1)
    world.until_state(job, "RUNNING", "COMPLETED")
    assert time.time() - begun >= 3.0


def test_a_users_own_hold_is_kept_until_the_user_releases(world: Live) -> None:
    job = world.sbatch("-H", "--gres=gpu:1", seconds=1)
    other = world.sbatch("--gres=gpu:1", seconds=1)
    world.until_state(other, "RUNNING", "COMPLETED")
    assert world.state(job) == "PENDING"
    world.cluster.run("scontrol", "release", job, user="daemon")
    world.until_state(job, "RUNNING", "COMPLETED")
    assert world.headway.ask("why", job)["decisions"], "the policy placed it"


def test_a_user_may_hold_a_waiting_job(world: Live) -> None:
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=600)
    world.until_state(blocker, "RUNNING")
    job = world.sbatch("--gres=gpu:1", seconds=1)
    world.cluster.run("scontrol", "hold", job, user="daemon")
    world.until(lambda: mark(world, job) == "headway:user-hold", "the hold is the user's")
    world.cluster.run("scancel", blocker)
    world.until_state(blocker, "CANCELLED")
    time.sleep(2.0)
    assert world.state(job) == "PENDING"
    world.cluster.run("scontrol", "release", job, user="daemon")
    world.until_state(job, "RUNNING", "COMPLETED")


def squeue(world: Live, *options: str, column: bool) -> str:
    """Return what squeue prints, with or without the column of the file for /etc/profile.d."""
    script = f"{f'. {PROFILE}; ' if column else ''}squeue {' '.join(options)} 2>&1"
    return world.cluster.run("dash", "-i" if column else "-e", "-c", script, user="daemon").stdout


_RUN_TIME = re.compile(r" *\b\d+:\d\d\b")
"""The one column that ticks between two calls."""


def test_plain_squeue_says_who_holds_a_job_and_other_uses_of_it_stay_as_they_are(world: Live) -> None:
    # given a job that runs, one that Headway holds, and one that its user holds
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=600)
    world.until_state(blocker, "RUNNING")
    waiting = world.sbatch("--gres=gpu:1", seconds=1)
    held = world.sbatch("-H", "--gres=gpu:1", seconds=1)
    world.until(lambda: mark(world, held) == "headway:user-hold")
    # when users type squeue with options that leave its columns as they are, then these are followed by one more
    for options in ([], ["--me"], ["-u", "daemon"], ["-t", "PD"], ["-j", f"{waiting},{held}"], ["-r"], ["-S", "i"]):
        plain, column = (squeue(world, "-h", *options, column=way).splitlines() for way in (False, True))
        assert [line.split()[0] for line in column] == [line.split()[0] for line in plain]
        rows = {line.split()[0]: line.split()[7:] for line in column}
        assert without_birthmark(" ".join(rows[waiting])) == "(JobHeldUser) headway:hold", options
        assert without_birthmark(" ".join(rows[held])) == "(JobHeldUser) headway:user-hold"
    assert squeue(world, column=True).splitlines()[0].split()[-2:] == ["NODELIST(REASON)", "ADMIN_COMMENT"]
    # and a choice of columns, or of what is listed, is what it was
    for options in (
        ["-o", "%i_%T"],
        ["-O", "JobID,State"],
        ["--format=%i"],
        ["-s"],
        ["--start"],
        ["-h", "-o", "%.18i"],
    ):
        shown = [_RUN_TIME.sub("", squeue(world, *options, column=way)) for way in (True, False)]
        assert shown[0] == shown[1], options
    head = squeue(world, "-l", column=True).splitlines()[1]
    assert head == squeue(world, "-l", column=False).splitlines()[1]


def test_a_user_may_not_release_what_headway_holds(world: Live) -> None:
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=600)
    world.until_state(blocker, "RUNNING")
    job = world.sbatch("--gres=gpu:8", seconds=1)
    world.refused("scontrol", "release", job)
    world.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now", user="daemon")
    shown = world.show(job)
    assert (shown["JobState"], shown["Priority"]) == ("PENDING", "0")


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (("-C", "fast"), {"n2", "n3"}),
        (("-C", "fast&ib"), {"n3"}),
        (("-w", "n4"), {"n4"}),
        (("-x", "n1,n2,n3"), {"n4"}),
        (("-C", "[fast|slow]"), {"n1", "n2", "n3", "n4"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_node_lists_and_features_are_honoured(world: Live, options: tuple[str, ...], allowed: set[str]) -> None:
    job = world.sbatch(*options, "--gres=gpu:1", seconds=2)
    world.until_state(job, "RUNNING", "COMPLETED")
    assert set(world.expand(world.show(job)["NodeList"])) <= allowed


def test_a_job_that_slurm_has_checked_is_placed_at_once_and_begins_when_it_was_submitted(world: Live) -> None:
    # given a controller that has nothing else to do
    job = world.sbatch("-C", "fast", "--gres=gpu:1", seconds=600)
    # when the job runs, then the policy has placed it, before the begin time that Slurm's check needs, and nothing of that is left
    world.until_state(job, "RUNNING")
    shown = world.show(job)
    submitted_s, eligible_s, started_s = (
        time.mktime(time.strptime(shown[key], "%Y-%m-%dT%H:%M:%S"))
        for key in ("SubmitTime", "EligibleTime", "StartTime")
    )
    assert eligible_s <= started_s < submitted_s + 30
    world.until_seen_running(job)
    world.until(lambda: mark(world, job) == "", "the mark is gone")
    assert world.headway.ask("why", job)["decisions"], "the policy placed it"


def test_a_later_begin_time_of_such_a_job_is_waited_for(world: Live) -> None:
    begun = time.time()
    job = world.sbatch("-C", "fast", "--begin=now+8", "--gres=gpu:1", seconds=1)
    world.until(lambda: mark(world, job) == "headway:hold", "it is held")
    world.until_state(job, "RUNNING", "COMPLETED")
    assert time.time() - begun >= 7.0


def test_a_request_that_no_nodes_can_run_is_refused_at_its_submission(world: Live) -> None:
    for impossible in (["-C", "fast&slow"], ["-N3", "-C", "ib"], ["-x", "n[1-4]"], ["--tmp=900T"]):
        said = world.refused("sbatch", *impossible, "--gres=gpu:1", "--wrap=true")
        assert "Requested node configuration is not available" in said


def test_a_reservation_is_honoured(world: Live) -> None:
    world.cluster.run(
        "scontrol", "create", "reservation", "ReservationName=exam", "StartTime=now", "Duration=10", "Nodes=n1,n2",
        "Users=daemon,root",
    )  # fmt: skip
    try:
        inside = world.open_job("--reservation=exam", "-N2", "--gres=gpu:8")
        outside = world.open_job("-N2", "--gres=gpu:8")
        for job, nodes in ((inside, ["n1", "n2"]), (outside, ["n3", "n4"])):
            world.until_begun(job)
            shown = world.show(job)
            assert (shown["JobState"], shown["Restarts"]) == ("RUNNING", "0"), f"{shown}\n{world.everything()}"
            assert world.expand(shown["NodeList"]) == nodes
    finally:
        world.cancel_all()
        world.cluster.run("scontrol", "delete", "ReservationName=exam")


def test_no_requeue_and_time_limits_stay_as_they_were(world: Live) -> None:
    job = world.sbatch("--no-requeue", "--time=7", "--gres=gpu:1", seconds=600)
    world.until_state(job, "RUNNING")
    shown = world.show(job)
    assert (shown["Requeue"], shown["TimeLimit"]) == ("0", "00:07:00")


def test_other_tools_admin_comments_survive(world: Live) -> None:
    blocker = world.sbatch("-N4", "--gres=gpu:8", seconds=600)
    world.until_state(blocker, "RUNNING")
    job = world.sbatch("--gres=gpu:1", seconds=1)
    world.cluster.run("scontrol", "update", f"jobid={job}", f"AdminComment=site=42 {mark(world, job)}")
    world.cluster.run("scancel", blocker)
    world.until_state(job, "RUNNING", "COMPLETED")
    assert "site=42" in mark(world, job)
