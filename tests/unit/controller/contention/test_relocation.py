"""Where a running job could be instead: empty nodes first, away from others that communicate, behind those that wait."""

from __future__ import annotations

from typing import Any

import pytest

from controller.contention.relocation import Relocation, Relocations
from controller.cycle.decision.plan import Plan, make_plan
from controller.observe.observer import Observer
from controller.slurm.model.job import SlurmJob
from controller.state.ledger import Ledger
from policies.api import load_policy
from policies.model import Placement
from tests.unit.controller.examples.build import NOW_S, job, node, request, running, snapshot
from tests.unit.controller.examples.slowed import DL, training

SHARED = frozenset({"n1", "n2"})
A, B = training(1, "n1 n2"), training(2, "n1 n2")


def relocations(*jobs: SlurmJob, ledger: Ledger | None = None, nodes: Any = 4) -> tuple[Relocations, dict[str, int]]:
    ledger = ledger or Ledger()
    observation = Observer().observe(snapshot(*jobs, nodes=nodes), ledger, DL)
    rows = {found.key.job_id: row for row, found in enumerate(observation.rows)}
    return Relocations(observation, ledger.originals), rows


def place(*jobs: SlurmJob, moving: SlurmJob = A, off: frozenset[str] = SHARED, **more: Any) -> Relocation | None:
    found, rows = relocations(*jobs, **more)
    return found.find(rows[moving.key.job_id], moving, off)


def test_empty_nodes_come_first() -> None:
    found = place(A, B, training(3, "n3", gpus=1), nodes=5)
    assert found is not None
    assert (found.nodes, found.empty) == (("n4", "n5"), True)
    assert found.constraint.avoid == {"n1", "n2", "n3"}


def test_then_nodes_of_jobs_that_do_not_communicate() -> None:
    found = place(A, B, training(3, "n3", gpus=1))
    assert found is not None
    assert (found.nodes, found.empty) == (("n3", "n4"), False)
    assert found.constraint.avoid == SHARED


def test_never_nodes_of_others_that_do() -> None:
    assert place(A, B, training(3, "n3 n4")) is None
    # nor where Slurm itself has placed them, be it on one node of ours only
    assert place(A, B, training(3, "n3 n4", partition="other")) is None
    elsewhere = node("x1", partitions=frozenset({"other"}))
    nodes = (*(node(f"n{number}") for number in range(1, 5)), elsewhere)
    assert place(A, B, training(3, "n3 x1", partition="other"), nodes=nodes) is None


def test_a_job_on_one_node_goes_to_empty_nodes_only() -> None:
    one, two = training(1, "n1"), training(2, "n1")
    assert place(one, two, training(3, "n2"), moving=one, off=frozenset({"n1"}), nodes=2) is None
    found = place(one, two, training(3, "n2"), moving=one, off=frozenset({"n1"}), nodes=3)
    assert found is not None
    assert found.nodes == ("n3",)


def test_its_own_nodes_without_other_jobs_are_as_good_as_others() -> None:
    wide = training(1, "n1 n2", gpus=8)
    found = place(wide, training(2, "n3 n4"), moving=wide, off=frozenset({"n1"}), nodes=5)
    assert found is not None
    assert found.nodes == ("n2", "n5")


def test_waiting_jobs_that_fit_come_first() -> None:
    waiting = job("9", request=request(gpus_per_node=8, min_nodes=2))
    assert place(A, B, waiting) is None
    # who does not fit in any case is in nobody's way
    large = job("9", request=request(gpus_per_node=8, min_nodes=4))
    assert place(A, B, large) is not None


def test_what_was_found_for_one_is_not_found_for_another() -> None:
    found, rows = relocations(A, B)
    first = found.find(rows["1"], A, SHARED)
    assert first is not None
    other = found.find(rows["2"], B, SHARED)
    assert other is not None
    assert other.placement == first.placement
    found.take(first)
    assert found.find(rows["2"], B, SHARED) is None


def test_only_nodes_that_its_user_allows() -> None:
    nodes = tuple(node(f"n{i}", features=frozenset({"a"} if i < 4 else {"b"})) for i in range(1, 7))
    picky = training(1, "n1 n2", features="b")
    found = place(picky, B, moving=picky, nodes=nodes)
    assert found is not None
    assert found.nodes == ("n4", "n5")
    # as the user asked for them, not as Headway has pinned the job
    pinned = training(1, "n1 n2", request=request(gpus_per_node=2, min_nodes=2, required_nodes=("n1", "n2")))
    assert place(pinned, B, moving=pinned) is None
    ledger = Ledger(originals={pinned.key: request(gpus_per_node=2, min_nodes=2)})
    assert place(pinned, B, moving=pinned, ledger=ledger) is not None


@pytest.mark.parametrize(
    "odd",
    [
        {"features": "[rack1|rack2]"},
        {"by_topology": "--switches=1"},
        {"by_topology": "--segment=2"},
        {"request": request(gpus_per_node=2, min_nodes=2, max_nodes=2, required_nodes=("n1",))},
    ],
)
def test_what_only_slurm_can_place_is_not_moved(odd: dict[str, Any]) -> None:
    stays = training(1, "n1 n2", **odd)
    assert place(stays, B, moving=stays) is None


def test_nodes_that_take_no_jobs_are_no_place() -> None:
    nodes = (node("n1"), node("n2"), node("n3"), node("n4", available=False))
    assert place(A, B, nodes=nodes) is None


def test_exclusive_jobs_take_whole_nodes() -> None:
    whole = running("1", on={"n1": 8}, raw_id=1, since=NOW_S - 3000, exclusive=True, request=request(gpus_per_node=8))
    found = place(whole, training(2, "n2", gpus=1), moving=whole, off=frozenset({"n1"}), nodes=3)
    assert found is not None
    assert found.nodes == ("n3",)


def test_what_if_it_had_been_stopped() -> None:
    where, rows = relocations(A, B)
    found = where.find(rows["1"], A, SHARED)
    assert found is not None
    then = where.what_if(found)
    assert then.pending.tolist() == [0]
    assert [then.jobs.placement(row) for row in (0, 1)] == [None, Placement((0, 1), (2, 2))]
    # a policy places it there
    decision = load_policy("fifo").decide(then)
    assert decision.allocation[0] == found.placement == Placement((2, 3), (2, 2))
    assert isinstance(make_plan(then, decision, load_policy("fifo").spec), Plan)
