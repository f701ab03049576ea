"""On a real Slurm whose nodes have a GRES type for each GPU: jobs get exactly the GPUs of their pins, and stay bound to indices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.base.config import ControllerSettings
from controller.slurm.client import Pin
from controller.slurm.model.job import JobKey, SlurmJob
from controller.slurm.select import command_line_client
from slurm.minicluster.cluster import MiniCluster
from tests.cluster.conftest import skip_unless_possible, unique_name
from tests.cluster.live import Live, live
from tests.cluster.scheduling.slurm_bench import MiniClusterBench, contract_spec
from tests.contract.bench import Order, job_of
from tests.contract.steps import requeued, running, seen, submit_held

LAYOUT = '[[nodes]]\nnames = "n[1-2]"\ngpus = 8\nsockets = 2\n'
"""Two nodes with four GPUs at each socket."""


@pytest.fixture(scope="module")
def indexed_cluster() -> Iterator[MiniCluster]:
    skip_unless_possible()
    with MiniCluster(contract_spec(unique_name(), accounting=False)) as cluster:
        yield cluster


@pytest.fixture
async def bench(indexed_cluster: MiniCluster, cluster_user: str) -> AsyncIterator[MiniClusterBench]:
    settings = ControllerSettings.model_validate(
        {"partitions": ("dl",), "slurm_conf": indexed_cluster.slurm_conf, "slurm_timeout_s": 60.0}
    )
    bench = MiniClusterBench(indexed_cluster, command_line_client(settings), cluster_user)
    yield bench
    await bench.clear()


def gpus(job: SlurmJob) -> dict[str, int]:
    """Node -> GPUs that the job holds, as a mask."""
    return {share.node: share.gpu_mask for share in job.allocated}


async def bind(bench: MiniClusterBench, order: Order, nodes: tuple[str, ...], mask: int) -> tuple[JobKey, Pin]:
    """Submit a held job and bind it to these GPUs of each node."""
    key, job = await submit_held(bench, order)
    pin = Pin(key, nodes, mask.bit_count(), job.request, gpu_masks=(mask,) * len(nodes))
    assert bench.client.can_bind_gpus(pin)
    assert await bench.client.pin([pin]) == {}
    return key, pin


@pytest.mark.parametrize(
    ("order", "nodes", "mask"),
    [
        (Order(gres=2, nodes=2), ("n1", "n3"), 0b0100_1000),
        (Order(gpus_per_node=3), ("n2",), 0b1110_0000),
        (Order(gpus=1), ("n4",), 0b0010_0000),
        (Order(gpus=4), ("n2",), 0b1111_0000),
        (Order(gpus=6), ("n2", "n3", "n4"), 0b1000_0001),
        (Order(gres=2, nodes=2, ntasks=4, ntasks_per_node=2), ("n3", "n4"), 0b1100),
        (Order(gres=2, array=(4, 5)), ("n2",), 0b1100_0000),
    ],
    ids=["gres", "gpus-per-node", "one GPU", "gpus", "gpus on three nodes", "tasks", "task of an array"],
)
async def test_a_job_gets_exactly_the_gpus_of_its_pin(
    bench: MiniClusterBench, order: Order, nodes: tuple[str, ...], mask: int
) -> None:
    key, _ = await bind(bench, order, nodes, mask)
    assert await bench.client.release([key]) == {}
    assert gpus(await running(bench, key)) == dict.fromkeys(nodes, mask)


@pytest.mark.parametrize("order", [Order(gres=2, nodes=2), Order(gpus=4)], ids=["gres", "gpus"])
async def test_a_bound_job_gets_other_gpus_and_no_more_than_before(bench: MiniClusterBench, order: Order) -> None:
    # given a job that runs on the GPUs of its pin
    key, pin = await bind(bench, order, ("n1", "n3"), 0b0100_1000)
    await bench.client.release([key])
    # when it is stopped, and placed on other GPUs
    assert await bench.client.requeue_hold([(await running(bench, key)).key]) == {}
    key = (await requeued(bench, replace(await seen(bench, key), restarts=0))).key
    assert await bench.client.pin([replace(pin, key=key, nodes=("n2", "n3"), gpu_masks=(0b11, 0b11))]) == {}
    assert await bench.client.release([key]) == {}
    # then it has these alone
    assert gpus(await running(bench, key)) == {"n2": 0b11, "n3": 0b11}


async def test_a_bound_job_whose_pin_names_no_gpus_gets_free_ones(bench: MiniClusterBench) -> None:
    # given a job on GPU 0 of n1, one on GPU 1 of n2, and one that is bound and waits
    for node, mask in (("n1", 0b1), ("n2", 0b10)):
        other, _ = await bind(bench, Order(gres=1), (node,), mask)
        await bench.client.release([other])
        await running(bench, other)
    key, pin = await bind(bench, Order(gres=2, nodes=2), ("n3", "n4"), 0b1100_0000)
    # when a policy that counts GPUs only places it beside them
    assert await bench.client.pin([replace(pin, nodes=("n1", "n2"), gpu_masks=())]) == {}
    await bench.client.release([key])
    # then it has the lowest that are free on both
    assert gpus(await running(bench, key)) == {"n1": 0b1100, "n2": 0b1100}


@pytest.mark.parametrize(("nodes", "number"), [(("n2",), 1), (("n2",), 6), (("n1", "n2", "n3"), 2)])
async def test_a_bound_job_has_gpus_by_index_in_another_size_too(
    bench: MiniClusterBench, nodes: tuple[str, ...], number: int
) -> None:
    # given a job that runs on the GPUs of its pin, and is stopped
    key, pin = await bind(bench, Order(gpus=4), ("n1", "n3"), 0b1100_0000)
    await bench.client.release([key])
    assert await bench.client.requeue_hold([(await running(bench, key)).key]) == {}
    key = (await requeued(bench, replace(await seen(bench, key), restarts=0))).key
    # when it is placed in another size, whose GPUs its policy names
    size = replace(pin.original, gpus_per_job=number * len(nodes))
    wanted = Pin(key, nodes, number, size, resized=True, gpu_masks=(((1 << number) - 1) << 1,) * len(nodes))
    assert await bench.client.pin([wanted]) == {}
    await bench.client.release([key])
    # then it runs so, on the lowest GPUs that are free
    assert gpus(await running(bench, key)) == dict.fromkeys(nodes, (1 << number) - 1)


async def test_a_bound_job_that_fits_by_number_alone_is_refused_at_its_pin(bench: MiniClusterBench) -> None:
    for node, mask in (("n1", 0x0F), ("n2", 0xF0)):
        other, _ = await bind(bench, Order(gres=4), (node,), mask)
        await bench.client.release([other])
        await running(bench, other)
    key, pin = await bind(bench, Order(gres=2, nodes=2), ("n3", "n4"), 0b11)
    await bench.client.snapshot()
    failed = await bench.client.pin([replace(pin, nodes=("n1", "n2"), gpu_masks=())])
    assert "bound to GPUs by index" in failed[key].message
    assert (await seen(bench, key)).held


@pytest.mark.parametrize("order", [Order(gres=2), Order(gpus=4)], ids=["gres", "gpus"])
async def test_a_bound_job_that_is_given_to_slurm_runs_with_as_many_gpus(bench: MiniClusterBench, order: Order) -> None:
    nodes = ("n4",) if order.gres else ("n3", "n4")
    key, pin = await bind(bench, order, nodes, 0b1010_0000)
    assert await bench.client.unpin({key: pin.original}) == {}
    assert bench.client.stays_bound(key, pin.original)
    assert (await seen(bench, key)).request.required_nodes == ()
    await bench.client.release([key])
    assert list(gpus(await running(bench, key)).values()) == [0b1010_0000] * len(nodes)


async def test_a_job_that_was_not_bound_yet_gets_its_own_request_back(bench: MiniClusterBench) -> None:
    key, job = await submit_held(bench, Order(gres=2, nodes=2))
    pin = Pin(key, ("n1", "n2"), 2, job.request, gpu_masks=(0b11, 0b1100))
    assert not bench.client.can_bind_gpus(pin), "all nodes of a job have the same types"
    assert await bench.client.pin([pin]) == {}
    assert await bench.client.unpin({key: job.request}) == {}
    assert not bench.client.stays_bound(key, job.request)
    assert replace((await seen(bench, key)).request, max_nodes=0) == replace(job.request, max_nodes=0)


async def test_a_users_own_choice_of_indices_is_left_alone(
    bench: MiniClusterBench, indexed_cluster: MiniCluster
) -> None:
    job_id = await bench.sbatch("--hold", "--gres=gpu:g5:1")
    await indexed_mark(indexed_cluster, job_id)
    job = job_of(await bench.client.snapshot(), job_id)
    pin = Pin(job.key, ("n2",), 1, job.request, gpu_masks=(0b1,))
    assert not bench.client.can_bind_gpus(pin)
    assert await bench.client.pin([pin]) == {}
    await bench.client.release([job.key])
    assert gpus(await running(bench, job.key)) == {"n2": 0b10_0000}
    assert not bench.client.stays_bound(job.key, job.request)


async def indexed_mark(cluster: MiniCluster, job_id: str) -> None:
    cluster.run("scontrol", "update", f"JobId={job_id}", "AdminComment=headway:hold")


async def test_slurm_takes_no_request_without_indices_back(
    bench: MiniClusterBench, indexed_cluster: MiniCluster
) -> None:
    """The reason why a bound job stays bound; if this fails on a newer release, unpin can restore the request there."""
    key, _ = await bind(bench, Order(gres=2), ("n1",), 0b11)
    for words in (["TresPerNode=gres:gpu:2"], ["TresPerNode=", "TresPerJob=gres:gpu:2"]):
        done = indexed_cluster.run("scontrol", "update", f"JobId={key.job_id}", *words, check=False)
        assert "with and without type" in done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    layout: Path = tmp_path_factory.mktemp("layout") / "cluster.toml"
    layout.write_text(LAYOUT)
    layout.parent.chmod(0o755)
    settings = {"cluster_file": str(layout)}
    with live(policy="fifo-skip:gpus=packed", spec={"nodes": 2}, **settings) as world:
        yield world


def test_jobs_get_the_gpus_that_the_policy_chose_and_why_says_so(world: Live) -> None:
    # given jobs of 1, 2 and 4 GPUs, of which Slurm by itself would give the last one GPUs on both sockets
    jobs = [world.open_job(f"--gres=gpu:{count}") for count in (1, 2, 4)]
    for job in jobs:
        world.until_state(job, "RUNNING")
    # then each has the GPUs of the decision
    held = {job: indices(world, job) for job in jobs}
    assert held[jobs[2]] == "4-7", held
    for job in jobs:
        world.until_seen_running(job)
        said = world.headway.ask("why", job)["sentence"]
        assert f"Slurm was told to give it GPU{'s' if '-' in held[job] else ''} {held[job]} of n" in said
    for job in jobs:
        world.end(job)
        world.until_state(job, "COMPLETED")


def indices(world: Live, job: str) -> str:
    """Return the indices of a job's GPUs, as in 4-7."""
    held = [word for word in world.show(job)["GRES"].split(",") if ":1(" in word]
    numbers = [int(word.partition("IDX:")[2].rstrip(")")) for word in held]
    return str(numbers[0]) if len(numbers) == 1 else f"{min(numbers)}-{max(numbers)}"
