"""Binding to GPUs by index: each update changes the unit, and at no time does a job ask for other than all of its GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.slurm.client import Pin
from controller.slurm.model.job import NodeShare, ResourceRequest, SlurmJob
from controller.slurm.records import NEWER_GRES, OLDER_GRES, JobRecord
from controller.slurm.updates.changes import pin_step, unpin_step
from controller.slurm.updates.found import Found
from controller.slurm.updates.gpu_binding import IndexedGpus, binding_words, is_bound, may_bind
from tests.unit.controller.examples.build import NOW_S, job, node, request, running

TYPES = tuple((f"g{index}", 1) for index in range(8))
BY_NODE = request(gpus_per_node=2, min_nodes=2, max_nodes=2)
BY_JOB = request(gpus_per_job=4)


def record(gpus_by_index: tuple[tuple[int, int], ...] = (), prefix: str = OLDER_GRES) -> JobRecord:
    return JobRecord(1, (), True, True, bool(gpus_by_index), prefix, gpus_by_index)


def pin(original: ResourceRequest = BY_NODE, masks: tuple[int, ...] = (0b1001, 0b1001), **changes: Any) -> Pin:
    base = Pin(job().key, ("n1", "n2"), 2, original, gpu_masks=masks)
    return replace(base, **changes)


def indexed(*names: str, jobs: tuple[SlurmJob, ...] = ()) -> IndexedGpus:
    gpus = IndexedGpus()
    gpus.take([node(name, gpus_by_type=TYPES) for name in names], jobs)
    return gpus


def on(where: str, mask: int) -> SlurmJob:
    """A job that runs on GPUs of one node."""
    return running(on={where: 1}, allocated=(NodeShare(where, 2, mask, 2, 0),))


@pytest.mark.parametrize(
    ("request_now", "shown", "words"),
    [
        (BY_NODE, (), ["TresPerNode=", "TresPerJob=gres:gpu:4"]),
        (BY_JOB, (), ["TresPerJob=", "TresPerNode=gres:gpu:g0:1,gres:gpu:g3:1"]),
        (BY_NODE, ((0, 1), (3, 1)), []),
        (BY_JOB, ((0, 2), (3, 2)), []),
        (BY_NODE, ((0, 1), (1, 1)), ["TresPerNode=", "TresPerJob=gres:gpu:g0:2,gres:gpu:g3:2"]),
        (BY_JOB, ((0, 2), (1, 2)), ["TresPerJob=", "TresPerNode=gres:gpu:g0:1,gres:gpu:g3:1"]),
    ],
    ids=["by node", "by job", "bound by node", "bound by job", "others by node", "others by job"],
)
def test_each_update_takes_one_unit_away_and_asks_in_the_other(
    request_now: ResourceRequest, shown: tuple[tuple[int, int], ...], words: list[str]
) -> None:
    assert binding_words(record(shown), request_now, pin()) == words


@pytest.mark.parametrize(
    ("found", "wanted", "may"),
    [
        (record(), pin(), True),
        (record(), pin(BY_JOB), True),
        (record(prefix=NEWER_GRES), pin(), False),  # not tried there
        (record(), pin(masks=(0b11, 0b1100)), False),  # all nodes have the same types
        (record(), pin(masks=(0b111, 0b111)), False),  # more than the job gets
        (record(), pin(masks=(0b1001, 0)), False),
        (record(), pin(gpus_per_node=None), False),
        (record(), pin(resized=True), False),
        (record(), pin(replace(BY_NODE, gpu_type="a100")), False),
        (record(((0, 1),)), pin(replace(BY_NODE, gpus_fixed=True)), False),  # the user's own choice
        (record(), pin(request(gpus_per_task=1, num_tasks=4)), False),
        (record(((0, 1), (1, 1))), pin(), True),
    ],
)
def test_only_requests_by_number_are_bound(found: JobRecord, wanted: Pin, may: bool) -> None:
    assert may_bind(found, wanted) is may


def test_nodes_count_only_if_each_gpu_has_its_type() -> None:
    gpus = IndexedGpus()
    others = {"n2": (), "n3": (("g0", 4), ("g1", 4)), "n4": (*TYPES[:7], ("g8", 1))}
    gpus.take([node("n1", gpus_by_type=TYPES), *(node(name, gpus_by_type=of) for name, of in others.items())], ())
    assert gpus.have(pin(nodes=("n1",), gpu_masks=(0b1001,)))
    assert not any(gpus.have(pin(nodes=("n1", name))) for name in others)
    assert not gpus.have(pin(nodes=("n1",), gpu_masks=(1 << 8,)))


def test_free_gpus_are_those_of_all_nodes_that_no_job_and_no_pin_has() -> None:
    gpus = indexed("n1", "n2", jobs=(on("n1", 0b11), on("n2", 0b1000)))
    assert gpus.choose(("n1", "n2"), 2) == 0b1_0100
    gpus.promise(("n2",), 0b100)
    assert gpus.choose(("n1", "n2"), 2) == 0b11_0000
    assert gpus.choose(("n1",), 6) == 0b1111_1100
    assert gpus.choose(("n1",), 7) == 0
    assert gpus.choose(("n1", "n9"), 1) == 0


def test_a_node_with_a_job_on_unknown_gpus_has_no_free_ones() -> None:
    assert indexed("n1", jobs=(on("n1", 0),)).choose(("n1",), 1) == 0


def test_a_bound_job_keeps_its_gpus_and_gives_its_nodes_back() -> None:
    shown = request(gpus_per_node=2, min_nodes=2, max_nodes=2, required_nodes=("n1", "n2"), gpus_fixed=True)
    found = Found(job(request=shown), record(((0, 1), (3, 1))))
    assert is_bound(found.record, BY_NODE)
    step = unpin_step(found, BY_NODE)
    assert step is not None
    assert step.words == ("update", "JobId=1", "ResetAccrueTime", "ReqNodeList=")  # type: ignore[union-attr]
    assert unpin_step(replace(found, job=job(request=replace(shown, required_nodes=()))), BY_NODE) is None


def test_a_bound_job_is_not_pinned_without_gpus() -> None:
    found = Found(job(request=replace(BY_NODE, gpus_fixed=True)), record(((0, 1), (3, 1))))
    step = pin_step(found, pin(masks=()), NOW_S)
    assert "bound to GPUs by index" in step.message  # type: ignore[union-attr]


def test_a_total_that_is_bound_can_be_divided_among_other_nodes() -> None:
    shown = request(gpus_per_node=2, min_nodes=2, max_nodes=2, required_nodes=("n1", "n2"), gpus_fixed=True)
    found = Found(job(request=shown), record(((0, 1), (3, 1))))
    step = pin_step(found, pin(BY_JOB, masks=(0b11, 0b11), nodes=("n2", "n3")), NOW_S)
    words = step.words  # type: ignore[union-attr]
    assert words[3:5] == ("TresPerNode=", "TresPerJob=gres:gpu:g0:2,gres:gpu:g1:2")


@pytest.mark.parametrize("own", [request(gpus_per_job=2, gpu_type="g0"), request(gpus_per_job=2, gpus_fixed=True)])
def test_a_job_whose_user_names_types_is_not_bound(own: ResourceRequest) -> None:
    assert not is_bound(record(((0, 2),)), own)
