"""Which nodes and GPUs a request gets: the divisions are those measured on Slurm 22.05."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.slurm.embedded import sbatch_request
from controller.slurm.embedded.ctld.allocation import Capacity, allocate, lowest_bits
from controller.slurm.model.job import NodeShare, ResourceRequest


def _free(*gpus: int, cpus: int = 64, memory_mib: int = 256_000) -> dict[str, Capacity]:
    return {f"n{i}": Capacity((1 << g) - 1, cpus, memory_mib, g == 8) for i, g in enumerate(gpus, start=1)}


def _gpus(shares: tuple[NodeShare, ...] | None) -> dict[str, int] | None:
    return None if shares is None else {share.node: share.gpus for share in shares}


def test_lowest_bits() -> None:
    assert lowest_bits(0b1011_0110, 3) == 0b0001_0110


def test_gpus_of_a_job_fill_the_first_node_and_leave_one_for_each_other() -> None:
    request = sbatch_request(gpus=6, nodes=2)
    assert _gpus(allocate(request, False, _free(8, 8, 8, 8))) == {"n1": 5, "n2": 1}


def test_gpus_of_a_job_go_to_the_fewest_nodes() -> None:
    assert _gpus(allocate(sbatch_request(gpus=12, nodes=(1, 3)), False, _free(8, 8, 8, 8))) == {"n1": 8, "n2": 4}
    assert _gpus(allocate(sbatch_request(gpus=12), False, _free(4, 8, 4, 8))) == {"n2": 8, "n4": 4}


def test_tasks_fill_the_first_node_and_leave_one_for_each_other() -> None:
    request = sbatch_request(gpus_per_task=1, ntasks=4, nodes=2)
    assert _gpus(allocate(request, False, _free(8, 8))) == {"n1": 3, "n2": 1}


def test_gpus_per_node_take_the_requested_nodes() -> None:
    assert _gpus(allocate(sbatch_request(gpus_per_node=4), False, _free(3, 4, 8))) == {"n2": 4}
    assert _gpus(allocate(sbatch_request(gpus_per_node=4, nodes=2), False, _free(3, 4, 8))) == {"n2": 4, "n3": 4}
    assert allocate(sbatch_request(gpus_per_node=4, nodes=3), False, _free(3, 4, 8)) is None


def test_required_and_excluded_nodes() -> None:
    free = _free(8, 8, 8)
    assert _gpus(allocate(sbatch_request(gpus_per_node=1, nodelist=("n3",)), False, free)) == {"n3": 1}
    assert _gpus(
        allocate(sbatch_request(gpus_per_node=1, nodes=2, nodelist=("n3",), exclude=("n1",)), False, free)
    ) == {
        "n2": 1,
        "n3": 1,
    }
    assert allocate(sbatch_request(gpus_per_node=1, nodelist=("n9",)), False, free) is None


def test_exclusive_takes_a_whole_idle_node() -> None:
    shares = allocate(sbatch_request(gpus_per_node=1), True, _free(7, 8))
    assert shares == (NodeShare("n2", 8, 0xFF, 64, 256_000),)


def test_cpus_and_memory_limit_too() -> None:
    few_cpus = {"n1": Capacity(0xFF, 2, 256_000, False), "n2": Capacity(0xFF, 8, 256_000, False)}
    assert _gpus(allocate(sbatch_request(gpus_per_node=1, cpus_per_task=4), False, few_cpus)) == {"n2": 1}
    little_memory = {"n1": Capacity(0xFF, 64, 1000, False), "n2": Capacity(0xFF, 64, 9000, False)}
    assert _gpus(allocate(sbatch_request(gpus_per_node=1, memory_mib_per_node=5000), False, little_memory)) == {"n2": 1}
    assert _gpus(allocate(sbatch_request(gpus_per_node=1, cpus_per_task=3), False, little_memory, 2000)) == {"n2": 1}


_REQUESTS = st.builds(
    lambda form, gpus, nodes, more, tasks, cpus: sbatch_request(
        **{form: gpus}, nodes=nodes if more is None else (nodes, nodes + more), ntasks=tasks, cpus_per_task=cpus
    ),
    form=st.sampled_from(["gpus_per_node", "gpus", "gpus_per_task"]),
    gpus=st.integers(1, 20),
    nodes=st.integers(1, 4),
    more=st.none() | st.integers(0, 3),
    tasks=st.none() | st.integers(1, 12),
    cpus=st.integers(1, 4),
)


@given(request=_REQUESTS, free=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 32)), min_size=1, max_size=6))
def test_allocated_resources_were_free_and_are_those_of_the_request(
    request: ResourceRequest, free: list[tuple[int, int]]
) -> None:
    capacities = {f"n{i}": Capacity(mask, cpus, 1 << 20, False) for i, (mask, cpus) in enumerate(free)}
    shares = allocate(request, False, capacities)
    if shares is None:
        return
    assert request.min_nodes <= len(shares) <= (request.max_nodes or len(free))
    for share in shares:
        capacity = capacities[share.node]
        assert share.gpu_mask & ~capacity.gpu_mask == 0
        assert share.gpu_mask.bit_count() == share.gpus
        assert share.cpus <= capacity.cpus
    total = sum(share.gpus for share in shares)
    assert sum(share.cpus for share in shares) >= request.num_cpus
    if request.gpus_per_job is not None:
        assert total == request.gpus_per_job
        assert all(share.gpus >= 1 for share in shares)
    elif request.gpus_per_task is not None:
        assert total == request.gpus_per_task * max(request.num_tasks, len(shares))
    else:
        assert all(share.gpus == request.gpus_per_node for share in shares)


def test_named_gpus_are_taken_or_waited_for() -> None:
    free = {"n1": Capacity(0b1111_0110, 64, 256_000, False), "n2": Capacity(0xFF, 64, 256_000, True)}
    request = sbatch_request(gpus_per_node=2)
    shares = allocate(request, False, free, gpu_masks={"n1": 0b11_0000})
    assert shares is not None
    assert [(share.node, share.gpu_mask) for share in shares] == [("n1", 0b11_0000)]
    bound = sbatch_request(gpus_per_node=2, nodelist=("n1",))
    assert allocate(bound, False, free, gpu_masks={"n1": 0b11}) is None, "GPU 0 is in use"
