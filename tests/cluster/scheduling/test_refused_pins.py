"""On a real Slurm: jobs that Slurm does not start where a policy put them find their way, with and without a controller."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from controller.slurm.model.job import JobKey, ResourceRequest
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK
from controller.state.journal import Journal
from controller.state.ledger import Ledger, PinRecord
from slurm.errors import CommandError
from tests.birthmarks import without_birthmark
from tests.cluster.live import COMES_S, Live, live

TWO_OF_ONE_TYPE = "--gpus=g0:2"
"""Every node has one GPU of that type: Slurm alone takes two nodes, and calls the job impossible when it is bound to one."""
ITS_REQUEST = ResourceRequest(1, 0, 1, 1, gpus_per_job=2, gpu_type="g0")


@pytest.fixture(scope="module")
def world() -> Iterator[Live]:
    with live(start_grace_s=2.0, spec={"nodes": 3, "cpus": 8}) as world:
        yield world


@pytest.fixture(autouse=True)
def idle(world: Live) -> Iterator[None]:
    yield
    if "controller" not in world.headway.processes:
        world.headway.start_controller()
    world.clear()


def runs_on_two_nodes(world: Live, job: str) -> None:
    world.until_state(job, "RUNNING")
    assert sorted(world.nodes(job).values()) == [1, 1]
    world.until(
        lambda: not without_birthmark(world.show(job).get("AdminComment", "")), "nothing of ours is left in the job"
    )


def refused_while_nobody_looks(world: Live) -> str:
    """A job of a controller that was killed right after it had placed and released it."""
    world.headway.stop("controller", signal.SIGKILL)
    world.renew_lease()
    job = world.sbatch(TWO_OF_ONE_TYPE, seconds=600)
    assert without_birthmark(world.show(job)["AdminComment"]) == HOLD_MARK
    key = JobKey(job, int(world.show_submit_s(job)))
    with closing(Journal(world.headway.folder / "state" / "journal.sqlite")) as journal:
        ledger = Ledger(originals={key: ITS_REQUEST})
        ledger.pins[key] = PinRecord(("n1",), (2,), 0, time.time(), "fifo-skip", "")
        journal.save_jobs(ledger, [key])
    world.cluster.run("scontrol", "update", f"JobId={job}", "NumNodes=1-1", "ReqNodeList=n1")
    world.cluster.run("scontrol", "release", job)
    world.cluster.run("scontrol", "update", f"JobId={job}", f"AdminComment={PIN_MARK}")
    world.until(lambda: world.show(job)["Reason"] == "BadConstraints", "Slurm calls it impossible")
    assert world.show(job)["Priority"] == "0"
    return job


def test_a_job_that_slurm_cannot_run_where_it_was_placed_runs_where_slurm_chooses(world: Live) -> None:
    job = world.sbatch(TWO_OF_ONE_TYPE, seconds=600)
    runs_on_two_nodes(world, job)
    sentence = world.until(
        lambda: said if "placed by Slurm itself" in (said := world.headway.ask("why", job)["sentence"]) else "",
        "why knows that it runs",
    )
    assert "BadConstraints" in sentence
    (run,) = world.headway.ask("report", job)["runs"]
    assert "BadConstraints" in run["reason"]


def test_a_controller_that_is_started_again_finds_such_a_job(world: Live) -> None:
    job = refused_while_nobody_looks(world)
    world.headway.start_controller()
    runs_on_two_nodes(world, job)


def test_the_watchdog_finds_such_a_job(world: Live) -> None:
    job = refused_while_nobody_looks(world)
    world.expire_lease()
    world.headway.start_watchdog()
    try:
        runs_on_two_nodes(world, job)
    finally:
        world.headway.stop("watchdog")


def test_a_request_that_no_node_can_hold_is_reported_in_slurms_own_words(world: Live) -> None:
    with pytest.raises(CommandError, match="Requested node configuration is not available"):
        world.sbatch("--gres=gpu:9")
    job = world.sbatch("--gres=gpu:1", "--sockets-per-node=64")
    world.until(lambda: world.show(job).get("Reason") == "BadConstraints", "Slurm's verdict")
    reported = world.until(lambda: answer if "BadConstraints" in (answer := said(world, job)) else "", "why says so")
    assert "scontrol release" not in reported


def said(world: Live, job: str) -> str:
    return world.headway.headway("why", job, check=False).stdout


def test_a_job_is_placed_on_another_node_when_the_first_has_no_cores_for_its_gpus(world: Live) -> None:
    # given two nodes whose GPUs are free, and the cores of half of them are not
    for node in ("n1", "n2"):
        world.until_state(world.sbatch("-w", node, "-n4", "-m", "block:block", seconds=600), "RUNNING")
    # when a job wants more GPUs than those of the other half, with cores beside them
    job = world.sbatch("--gres=gpu:5", "--gres-flags=enforce-binding", seconds=600)
    # then it runs on the third, after Slurm has refused it elsewhere
    world.until_state(job, "RUNNING")
    assert list(world.nodes(job)) == ["n3"]
    placed = [decision["placement"] for decision in world.headway.ask("why", job)["decisions"]]
    # The grace is short: Slurm may be late with the third one too, which Headway then tries anew. It tries no other node twice.
    refused = [placement for placement in placed if placement != "n3:5"]
    assert refused
    assert "n3:5" in placed
    assert len(set(refused)) == len(refused)


def test_behind_a_job_that_was_given_to_slurm_a_job_is_placed_on_other_nodes_and_none_is_blamed() -> None:
    # The second attempt waits for longer than backfill pauses.
    with live(start_grace_s=4.0, spec={"nodes": 3, "cpus": 8}) as world:
        # given a job that waits in Slurm's own queue for n1, which is busy, and n2
        first = world.sbatch("-w", "n1", "--gres=gpu:8", "--time=60", seconds=600)
        world.until_state(first, "RUNNING")
        head = world.sbatch("-N2", "-w", "n1", "-x", "n3", "--gres=gpu:8", "--time=60", seconds=600)
        world.until(lambda: world.show(head).get("Reason") == "Resources", "Slurm is to place it")
        # when a job is placed on n2, where it would delay that one, and Slurm does not start it
        job = world.sbatch("--gres=gpu:8", seconds=600)
        world.until(lambda: "Priority" in said(world, job) and world.show(job)["Priority"] == "0", "it was refused")
        answer = world.headway.ask("why", job)
        assert answer["decisions"][-1]["placement"] == "n2:8"  # the first one; a second one may have come since
        assert "not placed on" not in answer["sentence"]
        # then it runs on the node that is left, and the other job still waits for its own
        world.until_state(job, "RUNNING", timeout_s=3 * COMES_S)
        assert world.nodes(job) == {"n3": 8}
        assert world.headway.ask("why", job)["decisions"]
        assert world.state(head) == "PENDING"
