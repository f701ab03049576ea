"""From what a job asks Slurm for to how its GPUs may lie on nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.observe.shape import JobShape, even_divisions, shape_of, uneven_shape
from controller.slurm.model.job import ResourceRequest
from policies.model import Split
from tests.unit.controller.examples.build import request

FIXED, EVEN, ANY = Split.FIXED, Split.EVEN, Split.ANY


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        (request(gpus_per_node=4), JobShape(4, FIXED, 1, 1, 4)),
        (request(gpus_per_node=4, min_nodes=3, max_nodes=3), JobShape(12, FIXED, 3, 3, 4)),
        (request(gpus_per_node=2, min_nodes=1, max_nodes=4), JobShape(2, FIXED, 1, 1, 2)),
        (request(gpus_per_job=8), JobShape(8, EVEN, 1, 2, 0)),
        (request(gpus_per_job=12), JobShape(12, EVEN, 2, 4, 0)),
        (request(gpus_per_job=6, min_nodes=2, max_nodes=2), JobShape(6, EVEN, 2, 2, 0)),
        (request(gpus_per_job=9, min_nodes=2, max_nodes=2), JobShape(9, ANY, 2, 2, 0)),
        (request(gpus_per_job=13), JobShape(13, ANY, 2, 13, 0)),
        (request(gpus_per_task=4, num_tasks=2), JobShape(8, FIXED, 1, 1, 8)),
        (request(gpus_per_task=4, num_tasks=4), JobShape(16, FIXED, 2, 2, 8)),
        (request(gpus_per_task=3, num_tasks=4), JobShape(12, FIXED, 2, 2, 6)),
        (request(gpus_per_task=3, num_tasks=3), JobShape(9, FIXED, 3, 3, 3)),
    ],
)
def test_a_request_becomes_a_shape_that_slurm_understands(asked, shape):
    assert shape_of(asked, node_gpus=8) == shape


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(gpus_per_job=64, max_nodes=2),
        request(gpus_per_task=9, num_tasks=1),
        request(gpus_per_job=1, min_nodes=2),
    ],
)
def test_a_request_that_never_fits_has_no_shape(asked):
    assert shape_of(asked, node_gpus=8) is None


@given(
    st.integers(1, 300), st.integers(0, 40), st.integers(0, 80), st.integers(1, 16), st.integers(0, 12), st.booleans()
)
def test_the_fewest_nodes_are_found_with_any_bounds(total, least, most, node_gpus, gpus_per_task, by_task):
    """Return the shape found by trying every number of nodes."""
    if by_task:
        asked = ResourceRequest(least, most, total, total, gpus_per_task=gpus_per_task)
        fits = [
            nodes
            for nodes in range(max(least, 1), min(most or total, total) + 1)
            if gpus_per_task and total % nodes == 0 and total // nodes * gpus_per_task <= node_gpus
        ]
        found = shape_of(asked, node_gpus)
        assert (found.min_nodes if found else None) == (fits[0] if fits else None)
        return
    found = shape_of(ResourceRequest(least, most, 1, 1, gpus_per_job=total), node_gpus)
    fewest = max(least, -(-total // node_gpus), 1)
    last = min(most or total, total)
    assert (found is None) == (fewest > last)
    if found:
        even = any(total % nodes == 0 for nodes in range(fewest, min(last, max(2 * fewest, least)) + 1))
        assert found.split is (Split.EVEN if even else Split.ANY)


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 20))
def test_even_divisions_are_all_of_them(total, node_gpus, least):
    shape = shape_of(request(gpus_per_job=total, min_nodes=least), node_gpus)
    if shape is not None and shape.split is EVEN:
        found = list(even_divisions(shape))
        expected = [(n, total // n) for n in range(shape.min_nodes, shape.max_nodes + 1) if total % n == 0]
        assert sorted(found) == expected
        assert expected


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        (request(gpus_per_job=25), JobShape(25, ANY, 4, 25, 0)),
        (request(gpus_per_job=25, max_nodes=6), JobShape(25, ANY, 4, 6, 0)),
        (request(gpus_per_job=13), None),
        (request(gpus_per_node=4), None),
        (request(gpus_per_task=4, num_tasks=2), None),
    ],
)
def test_slurm_may_divide_only_what_is_asked_for_in_all(asked, shape):
    assert uneven_shape(asked, shape_of(asked, 8)) == shape
