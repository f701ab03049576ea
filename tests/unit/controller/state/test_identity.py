"""An id that slurmctld has issued again does not give one job the request of another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.slurm.birthmark import BIRTHMARK
from controller.slurm.model.job import JobKey, Phase, ResourceRequest
from controller.slurm.model.marks import HOLD_MARK
from controller.state.identity import is_another, may_be_same
from controller.state.ledger import Ledger, PinRecord
from controller.state.preemption import RelocationConstraint
from tests.unit.controller.examples.build import job, request
from tests.unit.controller.worlds.world import World

OLD = JobKey("1", 100)
TOTAL = request(gpus_per_job=8, min_nodes=1, max_nodes=4)
BOUND = request(gpus_per_node=4, min_nodes=2, max_nodes=2, required_nodes=("n1", "n2"))


def known(original: ResourceRequest | None, pin: PinRecord | None = None, gpus: int | None = None) -> Ledger:
    ledger = Ledger()
    if original is not None:
        ledger.originals[OLD] = original
    if pin is not None:
        ledger.pins[OLD] = pin
    if gpus is not None:
        ledger.set_constraint(OLD, RelocationConstraint(gpus=gpus))
    return ledger


def pin(*gpus: int) -> PinRecord:
    return PinRecord(("n1", "n2")[: len(gpus)], gpus, 0, 100.0, "fifo", "")


@pytest.mark.parametrize(
    ("shown", "ledger"),
    [
        (TOTAL, known(TOTAL)),  # restored before the requeue
        (BOUND, known(TOTAL, pin(4, 4))),
        (BOUND, known(TOTAL)),  # pinned by a run of which the journal has no pin
        (replace(TOTAL, required_nodes=("n1", "n2")), known(TOTAL, pin(5, 3))),  # divided by Slurm
        (BOUND, known(request(gpus_per_job=4), pin(4, 4), gpus=8)),  # in another size
        (BOUND, known(request(gpus_per_job=4), gpus=8)),
        (BOUND, known(replace(BOUND, required_nodes=()))),  # rebuilt after the loss of a journal
        (
            request(gpus_per_node=4, min_nodes=2, gpus_fixed=True),
            known(TOTAL),
        ),  # bound to GPUs by index, and given to Slurm
        (TOTAL, known(None)),  # nothing is known that could be given to the wrong job
    ],
)
def test_a_job_is_followed_by_the_request_that_it_shows(shown: ResourceRequest, ledger: Ledger) -> None:
    assert may_be_same(job("1", submit=200, restarts=1, request=shown), OLD, ledger)


@pytest.mark.parametrize(
    ("born", "of_pin", "same"), [("a1", "a1", True), ("b2", "a1", False), ("", "a1", True), ("b2", "", True)]
)
def test_a_job_with_another_birthmark_than_the_pinned_one_is_another_job(born: str, of_pin: str, same: bool) -> None:
    again = job(
        "1", submit=200, restarts=1, request=BOUND, admin_comment=f"{BIRTHMARK}{born} {HOLD_MARK}" if born else ""
    )
    ledger = known(TOTAL, replace(pin(4, 4), birthmark=of_pin))
    assert may_be_same(again, OLD, ledger) == same
    assert is_another(again, OLD, ledger) == (not same)


@pytest.mark.parametrize(
    ("shown", "ledger"),
    [
        (request(gpus_per_node=1), known(TOTAL, pin(4, 4))),
        (request(gpus_per_node=4, min_nodes=2, max_nodes=2), known(TOTAL, pin(4, 4))),  # as many GPUs, in another form
        (replace(BOUND, gpus_per_node=1), known(TOTAL, pin(4, 4))),
        (replace(TOTAL, gpu_type="a100"), known(TOTAL)),
    ],
)
def test_a_job_with_another_request_is_another_job(shown: ResourceRequest, ledger: Ledger) -> None:
    assert not may_be_same(job("1", submit=200, restarts=1, request=shown), OLD, ledger)


@pytest.mark.parametrize(("user", "same"), [("ann", True), ("", True), ("bob", False)])
def test_a_relocated_job_whose_request_is_not_known_is_followed_by_its_user(user: str, same: bool) -> None:
    """Slurm placed it itself, so Headway never wrote a request for it. An empty user is one of a journal of earlier versions."""
    ledger = Ledger()
    ledger.set_constraint(OLD, RelocationConstraint(gpus=2, user=user))
    ledger.set_constraint(OLD, RelocationConstraint(only=frozenset({"n1"})))  # keeps its size and its user
    ledger.clear_constraint(OLD)
    assert ledger.relocations[OLD].user == user
    assert may_be_same(job("1", submit=200, restarts=1, request=TOTAL), OLD, ledger) is same


@pytest.mark.parametrize("alive", [False, True])
async def test_an_id_that_is_issued_again_and_requeued_gets_its_own_request(tmp_path, alive) -> None:
    """The controller is away, or reads Slurm neither in between."""
    world = World(tmp_path, policy="fifo-skip")
    lost = world.sbatch(1000.0, gpus_per_node=4, nodes=2)
    await world.go_on(5)
    assert world.slurm.job(lost.job_id).phase is Phase.RUNNING
    world.alive = alive
    assert world.slurm.crash_slurmctld(lose_newest=1, away_s=1) == [lost]
    await world.clock.advance(10.0)
    again = world.sbatch(1000.0, gpus_per_node=1, nodes=1, user="bob" if alive else "alice")
    assert again.job_id == lost.job_id
    if alive:  # held on entry
        world.slurm.admin_release(again.job_id)
    await world.clock.advance(5.0)
    assert world.slurm.job(again.job_id).phase is Phase.RUNNING
    world.slurm.requeue(again.job_id)
    await world.clock.advance(5.0)
    world.alive = True
    if not alive:
        world.restart()
    await world.go_on(200)
    record = world.slurm.job(again.job_id)
    assert (record.phase, record.restarts) == (Phase.RUNNING, 1)
    assert [share.gpus for share in record.allocated] == [1]
