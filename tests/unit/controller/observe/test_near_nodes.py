"""Jobs that ask for nodes near each other: which of them Headway places itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controller.admin.explain.cycle_view import CycleView
from controller.admin.preemption_messages import check_size
from controller.observe.knowledge import Knowledge
from controller.observe.near_nodes import restricts
from controller.observe.observer import Observation, Observer
from controller.observe.resize import ResizeError
from controller.profiles.racks import ONE_RACK, Racks
from controller.slurm.model.job import SlurmJob
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from policies.model import Split
from tests.unit.controller.examples.build import job, request, running, snapshot

DL = frozenset({"dl"})
TWO_RACKS = Racks({"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"})
TWO_NODES = request(gpus_per_node=1, min_nodes=2, max_nodes=2)


def observe(*jobs: SlurmJob, racks: Racks | None = TWO_RACKS) -> Observation:
    """Return the observation of these jobs on four nodes. `racks` None: the topology has not been read yet."""
    knowledge = Knowledge()
    if racks is not None:
        knowledge.set_topology(racks)
    return Observer(knowledge).observe(snapshot(*jobs), Ledger(), DL)


@pytest.mark.parametrize(
    ("option", "racks", "given"),
    [
        ("--switches=1", None, True),
        ("--switches=1", TWO_RACKS, True),
        ("--switches=2", TWO_RACKS, False),
        ("--switches=3", TWO_RACKS, False),
        ("--segment=2", TWO_RACKS, True),
        ("--switches=1", ONE_RACK, False),
        ("--segment=2", ONE_RACK, False),
        ("", TWO_RACKS, False),
    ],
)
def test_an_option_that_rules_out_no_nodes_leaves_the_job_to_the_policy(
    option: str, racks: Racks | None, given: bool
) -> None:
    asks, runs = (one("1", TWO_NODES, option) for one in (_waiting, _running))
    assert (list(observe(asks, racks=racks).to_yield) == [asks.key]) is given
    assert (list(observe(runs, racks=racks).only_slurm) == [runs.key]) is given


def test_a_number_of_switches_that_nothing_can_read_counts() -> None:
    assert restricts("--switches=many", 2)


def test_a_job_that_leaves_the_nodes_open_gets_one() -> None:
    # given a job whose GPUs fit on one node, and that could be divided between two
    asks = _waiting("1", request(gpus_per_job=4, num_tasks=4), comment="headway=preemptible+min-gpus:1+max-gpus:16")
    seen = observe(asks)
    # then policies place it on one node, in its own size
    jobs = seen.state.jobs
    assert seen.to_yield == {}
    assert (jobs.split[0], jobs.min_nodes[0], jobs.max_nodes[0], jobs.num_gpus[0]) == (Split.EVEN, 1, 1, 4)
    assert jobs.min_gpus is None
    # and while it runs, it may be moved
    runs = _running("1", request(gpus_per_job=4, num_tasks=4), on={"n1": 4})
    assert observe(runs).only_slurm == {}


@pytest.mark.parametrize(
    "wide",
    [
        request(gpus_per_job=16, num_tasks=16),
        request(gpus_per_job=8, num_tasks=8, num_cpus=100),
        request(gpus_per_job=4, min_nodes=2, max_nodes=2),
    ],
)
def test_a_job_for_which_one_node_is_too_small_is_left_to_slurm(wide: Any) -> None:
    asks = _waiting("1", wide)
    assert observe(asks).to_yield == {asks.key: "asks for nodes near each other (--switches=1)"}


def test_racks_that_become_known_count_at_once() -> None:
    knowledge = Knowledge()
    observer, shot = Observer(knowledge), snapshot(_waiting("1", TWO_NODES, "--switches=2"))
    assert list(observer.observe(shot, Ledger(), DL).to_yield)
    knowledge.set_topology(TWO_RACKS)
    assert observer.observe(shot, Ledger(), DL).to_yield == {}


def test_a_job_on_one_node_does_not_grow_beyond_it() -> None:
    runs = _running("1", request(gpus_per_job=4), on={"n1": 4})
    for racks, refused in ((TWO_RACKS, True), (ONE_RACK, False)):
        seen = SimpleNamespace(observation=observe(runs, racks=racks))
        view = CycleView(seen, Ledger(), DL)  # type: ignore[arg-type]
        check_size(RelocationConstraint(gpus=8), view, runs)
        if refused:
            with pytest.raises(
                ResizeError, match=r"16 GPUs need several nodes, which only Slurm could choose, as job 1"
            ):
                check_size(RelocationConstraint(gpus=16), view, runs)
        else:
            check_size(RelocationConstraint(gpus=16), view, runs)


def _waiting(job_id: str, asked: Any, option: str = "--switches=1", **more: Any) -> SlurmJob:
    return job(job_id, by_topology=option, request=asked, **more)


def _running(job_id: str, asked: Any, option: str = "--switches=1", on: dict[str, int] | None = None) -> SlurmJob:
    return running(job_id, on=on or {"n1": 1, "n2": 1}, by_topology=option, request=asked)
