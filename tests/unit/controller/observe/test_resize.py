"""A user's request in another size: what the user drew stays in its ratios."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.observe import resize
from controller.observe.resize import ResizeError, request_now, resized
from controller.observe.shape import shape_of
from controller.observe.user_options import UserOptions
from controller.slurm.embedded import sbatch_request
from controller.slurm.model.job import ResourceRequest
from controller.state.ledger import Ledger
from controller.state.preemption import RelocationConstraint
from tests.unit.controller.examples.build import job

NODE_GPUS, ALL_GPUS = 8, 64


def request_with(*, cpus_per_task: int = 1, **options) -> ResourceRequest:
    """Return the request as slurmctld would show it after sbatch."""
    return replace(sbatch_request(cpus_per_task=cpus_per_task, **options), cpus_per_task=cpus_per_task)


def sized(request: ResourceRequest, number: int, **more) -> ResourceRequest:
    return resized(request, number, node_gpus=NODE_GPUS, all_gpus=ALL_GPUS, **more)


def sizes(request: ResourceRequest, **more) -> list[int]:
    """Return the numbers of GPUs that the request can be given on an empty cluster."""
    return [number for number in range(1, ALL_GPUS + 1) if is_possible(request, number, **more)]


def is_possible(request: ResourceRequest, number: int, **more) -> bool:
    with suppress(ResizeError):
        return sized(request, number, **more) is not None
    return False


@pytest.mark.parametrize(
    ("was", "number", "now"),
    [
        # GPUs by node: whole nodes, each as the user drew it
        (
            request_with(gpus_per_node=2, nodes=2, ntasks_per_node=2, cpus_per_task=4),
            2,
            request_with(gpus_per_node=2, nodes=1, ntasks_per_node=2, cpus_per_task=4),
        ),
        (
            request_with(gpus_per_node=2, nodes=2, ntasks_per_node=1, memory_mib_per_node=1000),
            8,
            request_with(gpus_per_node=2, nodes=4, ntasks_per_node=1, memory_mib_per_node=1000),
        ),
        (request_with(gpus_per_node=8, nodes=2), 32, request_with(gpus_per_node=8, nodes=4)),
        (request_with(gpus_per_node=2, nodes=2, ntasks=4), 6, request_with(gpus_per_node=2, nodes=3, ntasks=6)),
        (request_with(gpus_per_node=2, nodes=(1, 3)), 4, request_with(gpus_per_node=2, nodes=2)),
        # a part of a node: one task keeps its GPUs' share of CPUs and memory, several keep theirs whole
        (
            request_with(gpus_per_node=8, nodes=1, cpus_per_task=64, memory_mib_per_node=8000),
            2,
            request_with(gpus_per_node=2, nodes=1, cpus_per_task=16, memory_mib_per_node=2000),
        ),
        (
            request_with(gpus_per_node=8, nodes=2, ntasks_per_node=4, cpus_per_task=3),
            4,
            request_with(gpus_per_node=4, nodes=1, ntasks_per_node=2, cpus_per_task=3),
        ),
        # GPUs in all
        (request_with(gpus=16), 5, request_with(gpus=5)),
        (request_with(gpus=8, cpus_per_task=16), 16, request_with(gpus=16, cpus_per_task=16)),
        (request_with(gpus=8, cpus_per_task=16), 4, request_with(gpus=4, cpus_per_task=8)),
        (request_with(gpus=4, ntasks=2, cpus_per_task=2), 6, request_with(gpus=6, ntasks=3, cpus_per_task=2)),
        (request_with(gpus=4, nodes=2, ntasks_per_node=2), 8, request_with(gpus=8, nodes=4, ntasks_per_node=2)),
        (request_with(gpus=8, nodes=(2, 4)), 16, request_with(gpus=16, nodes=(4, 8), ntasks=4)),
        # GPUs by task
        (request_with(gpus_per_task=1, ntasks=2), 6, replace(request_with(gpus_per_task=1, ntasks=6), min_nodes=3)),
        (
            request_with(gpus_per_task=2, nodes=2, ntasks_per_node=2),
            4,
            request_with(gpus_per_task=2, nodes=1, ntasks_per_node=2),
        ),
        (
            request_with(gpus_per_task=2, nodes=2, ntasks_per_node=2),
            2,
            request_with(gpus_per_task=2, nodes=1, ntasks_per_node=1),
        ),
    ],
)
def test_what_the_user_drew_stays_in_its_ratios(was, number, now):
    assert sized(was, number) == now


@pytest.mark.parametrize(
    ("request_", "possible"),
    [
        (request_with(gpus_per_node=8, nodes=2), [*range(1, 9), 16, 24, 32, 40, 48, 56, 64]),
        (request_with(gpus_per_node=4, nodes=1, ntasks_per_node=4), [1, 2, 3, *range(4, 65, 4)]),
        (request_with(gpus_per_node=4, nodes=1, ntasks_per_node=2), [2, *range(4, 65, 4)]),
        (request_with(gpus_per_node=4, nodes=2, ntasks=3), [8]),
        (request_with(gpus=6, ntasks=2), list(range(3, 65, 3))),
        (request_with(gpus_per_task=4, ntasks=2), list(range(4, 65, 4))),
        (request_with(gpus_per_task=3, nodes=2, ntasks_per_node=2), [3, *range(6, 61, 6)]),
        (request_with(gpus_per_node=2, nodes=2, nodelist=("n1", "n2", "n3")), [1, 2, 4, 6]),
        (request_with(ntasks=4), []),
        (replace(request_with(gpus=4), gpus_fixed=True), []),
    ],
)
def test_possible_sizes(request_, possible):
    assert sizes(request_) == possible


def test_the_users_options_bound_the_size():
    options = UserOptions(min_gpus=2, max_gpus=4)
    assert sizes(request_with(gpus=2), options=options) == [2, 3, 4]
    with pytest.raises(ResizeError, match="at least 2 and at most 4 GPUs, not 8; possible: 2, 3, 4"):
        sized(request_with(gpus=2), 8, options=options)


@pytest.mark.parametrize(
    ("request_", "number", "words"),
    [
        (
            request_with(gpus_per_node=4, nodes=2, ntasks_per_node=2),
            6,
            "4 on each node and 4 tasks; possible: 2, 4, 8, 12, 16, 20, ...",
        ),
        (request_with(gpus_per_task=4, ntasks=2), 30, "4 for each task; possible: ..., 20, 24, 28, 32, 36, 40, ..."),
        (request_with(gpus=6, ntasks=2), 4, "2 tasks for 6 GPUs; possible: 3, 6, 9,"),
        (request_with(gpus=6), 65, "the cluster has 64 GPUs, not 65"),
        (request_with(gpus=6), 0, "0 is not a valid number of GPUs"),
        (request_with(ntasks=6), 4, "request for no GPUs; no other number is possible"),
    ],
)
def test_an_impossible_size_is_refused_with_the_possible_ones(request_, number, words):
    with pytest.raises(ResizeError) as refused:
        sized(request_, number)
    assert words in str(refused.value)


FORMS = st.one_of(
    st.builds(
        lambda n, g, t, c: request_with(gpus_per_node=g, nodes=n, ntasks_per_node=t, cpus_per_task=c),
        st.integers(1, 4), st.integers(1, 8), st.integers(1, 4), st.integers(1, 8),
    ),
    st.builds(
        lambda g, t, c: request_with(gpus=g, ntasks=t, cpus_per_task=c),
        st.integers(1, 32), st.integers(1, 4), st.integers(1, 8),
    ),
    st.builds(lambda g, t: request_with(gpus_per_task=g, ntasks=t), st.integers(1, 8), st.integers(1, 8)),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(FORMS)
def test_every_size_has_that_many_gpus_and_the_users_own_is_the_users_own(request_):
    own = shape_of(request_, NODE_GPUS)
    for number in sizes(request_):
        found = sized(request_, number)
        shape = shape_of(found, NODE_GPUS)
        assert shape.num_gpus == number
        assert found.num_cpus == found.num_tasks * found.cpus_per_task
    if own is not None and own.num_gpus <= ALL_GPUS:
        assert sized(request_, own.num_gpus) == request_


def test_every_size_is_computed_from_the_users_first_request():
    first = request_with(gpus_per_node=2, nodes=2, ntasks_per_node=2)
    pinned = job("1", request=request_with(gpus_per_node=2, nodes=1, ntasks_per_node=2))
    ledger = Ledger(originals={pinned.key: first})
    assert request_now(pinned, ledger) == first
    ledger.set_constraint(pinned.key, RelocationConstraint(gpus=8))
    assert request_now(pinned, ledger) == request_with(gpus_per_node=2, nodes=4, ntasks_per_node=2)
    ledger.set_constraint(pinned.key, RelocationConstraint(gpus=4))
    assert request_now(pinned, ledger) == first


def test_a_size_that_is_none_leaves_the_request_as_it_is():
    one = job("1", request=request_with(gpus_per_node=2, nodes=2))
    ledger = Ledger()
    ledger.set_constraint(one.key, RelocationConstraint(gpus=3))
    assert request_now(one, ledger) == one.request


def test_a_size_on_a_huge_cluster_is_judged_without_looking_at_all_of_them(monkeypatch):
    looked = []
    real = resize.shape_of
    monkeypatch.setattr(resize, "shape_of", lambda request, gpus: looked.append(request) or real(request, gpus))
    by_four = request_with(gpus_per_task=4, ntasks=2)
    assert resized(by_four, 40_000, node_gpus=8, all_gpus=100_000).num_tasks == 10_000
    assert len(looked) == 1
    with pytest.raises(ResizeError, match=r"possible: \.\.\., 39992, 39996, 40000, 40004, 40008, 40012, \.\.\."):
        resized(by_four, 40_001, node_gpus=8, all_gpus=100_000)
    with pytest.raises(ResizeError, match=r"possible: \.\.\., 99980, 99984, 99988, 99992, 99996, 100000"):
        resized(by_four, 10**9, node_gpus=8, all_gpus=100_000)
    assert len(looked) < 5000
