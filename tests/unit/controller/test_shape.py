"""From what a job asks Slurm for to how its GPUs may lie on nodes."""

import pytest

from controller.shape import Shape, shape_of
from policies.model import Split
from tests.unit.controller.build import request

FIXED, EVEN, ANY = Split.FIXED, Split.EVEN, Split.ANY


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        (request(gpus_per_node=4), Shape(4, FIXED, 1, 1, 4)),
        (request(gpus_per_node=4, min_nodes=3, max_nodes=3), Shape(12, FIXED, 3, 3, 4)),
        (request(gpus_per_node=2, min_nodes=1, max_nodes=4), Shape(2, FIXED, 1, 1, 2)),
        (request(gpus_per_job=8), Shape(8, EVEN, 1, 2, 0)),
        (request(gpus_per_job=12), Shape(12, EVEN, 2, 4, 0)),
        (request(gpus_per_job=6, min_nodes=2, max_nodes=2), Shape(6, EVEN, 2, 2, 0)),
        (request(gpus_per_job=9, min_nodes=2, max_nodes=2), Shape(9, ANY, 2, 2, 0)),
        (request(gpus_per_job=13), Shape(13, ANY, 2, 13, 0)),
        (request(gpus_per_task=4, num_tasks=2), Shape(8, FIXED, 1, 1, 8)),
        (request(gpus_per_task=4, num_tasks=4), Shape(16, FIXED, 2, 2, 8)),
        (request(gpus_per_task=3, num_tasks=4), Shape(12, FIXED, 2, 2, 6)),
        (request(gpus_per_task=3, num_tasks=3), Shape(9, FIXED, 3, 3, 3)),
    ],
)
def test_a_request_becomes_the_shape_that_slurm_can_be_told(asked, shape):
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
