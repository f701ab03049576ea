"""pin and unpin: a pinned job runs exactly on its nodes; an unpinned one where Slurm chooses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.slurm.client import Pin
from controller.slurm.model.job import Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from tests.contract.bench import GPUS_PER_NODE, Order, SlurmBench, held_gpus, job_of
from tests.contract.steps import requeued, running, seen, submit_held, submit_running

GPUS = 2
PICKS = {1: (2,), 2: (1, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}
"""Number of nodes → which of the bench's nodes; never those that Slurm would take first, where there is a choice."""
FORMS = {
    "gres": lambda nodes: Order(gres=GPUS, nodes=nodes),
    "gpus-per-node": lambda nodes: Order(gpus_per_node=GPUS, nodes=nodes),
    "gpus": lambda nodes: Order(gpus=GPUS * nodes),
    "gpus, node range": lambda nodes: Order(gpus=GPUS * nodes, nodes=(1, 4)),
    "gpus-per-task": lambda nodes: Order(gpus_per_task=GPUS, ntasks=nodes, nodes=nodes),
}


def _picked(bench: SlurmBench, count: int) -> tuple[str, ...]:
    return tuple(bench.nodes[index] for index in PICKS[count])


def _same_request(job: SlurmJob, original: ResourceRequest) -> bool:
    """Compare two requests except for a maximum of nodes that was never given: Slurm cannot remove one."""
    if original.max_nodes:
        return job.request == original
    return replace(job.request, max_nodes=0) == original


class Placing:
    """Jobs run exactly where they are pinned."""

    @pytest.mark.parametrize("count", PICKS)
    @pytest.mark.parametrize("form", FORMS)
    async def test_pinned_job_runs_exactly_there(self, bench: SlurmBench, form: str, count: int) -> None:
        nodes = _picked(bench, count)
        key, job = await submit_held(bench, FORMS[form](count))
        assert await bench.client.pin([Pin(key, nodes, GPUS, job.request)]) == {}
        assert (await seen(bench, key)).request.required_nodes == nodes
        assert await bench.client.release([key]) == {}
        assert held_gpus(await running(bench, key)) == dict.fromkeys(nodes, GPUS)

    async def test_named_gpus_are_given_where_slurm_can_be_told_which(self, bench: SlurmBench) -> None:
        nodes = _picked(bench, 2)
        key, job = await submit_held(bench, Order(gres=GPUS, nodes=2))
        pin = Pin(key, nodes, GPUS, job.request, gpu_masks=(0b1_1000, 0b1_1000))
        assert await bench.client.pin([pin]) == {}
        assert await bench.client.release([key]) == {}
        job = await running(bench, key)
        assert held_gpus(job) == dict.fromkeys(nodes, GPUS)
        if bench.client.can_bind_gpus(pin):
            assert [share.gpu_mask for share in job.allocated] == [0b1_1000, 0b1_1000]

    async def test_pinned_array_task_runs_exactly_there(self, bench: SlurmBench) -> None:
        nodes = _picked(bench, 2)
        key, job = await submit_held(bench, Order(gres=GPUS, nodes=2, array=(4, 5)))
        assert await bench.client.pin([Pin(key, nodes, GPUS, job.request)]) == {}
        assert await bench.client.release([key]) == {}
        assert held_gpus(await running(bench, key)) == dict.fromkeys(nodes, GPUS)
        other = await seen(bench, key._replace(job_id=key.job_id.replace("_4", "_5")))
        assert (other.held, other.request) == (True, job.request)

    async def test_slurm_divides_when_the_pin_leaves_it_to_slurm(self, bench: SlurmBench) -> None:
        nodes = _picked(bench, 2)
        key, job = await submit_held(bench, Order(gpus=11))
        assert await bench.client.pin([Pin(key, nodes, None, job.request)]) == {}
        assert await bench.client.release([key]) == {}
        held = held_gpus(await running(bench, key))
        assert (set(held), sum(held.values())) == (set(nodes), 11)

    async def test_tasks_with_gpus_of_their_own_are_divided_evenly(self, bench: SlurmBench) -> None:
        nodes = _picked(bench, 2)
        key, job = await submit_held(bench, Order(gpus_per_task=1, ntasks=4))
        assert await bench.client.pin([Pin(key, nodes, 2, job.request)]) == {}
        await bench.client.release([key])
        assert held_gpus(await running(bench, key)) == dict.fromkeys(nodes, 2)

    async def test_tasks_per_node_are_kept(self, bench: SlurmBench) -> None:
        nodes = _picked(bench, 2)
        key, job = await submit_held(bench, Order(gres=3, ntasks=4, ntasks_per_node=2))
        assert await bench.client.pin([Pin(key, nodes, 3, job.request)]) == {}
        assert (await seen(bench, key)).request.tasks_per_node == 2
        await bench.client.release([key])
        assert held_gpus(await running(bench, key)) == dict.fromkeys(nodes, 3)

    @pytest.mark.parametrize(
        ("order", "gpus_per_node"),
        [(Order(gpus=12), 5), (Order(gres=2, nodes=2), 3), (Order(gpus_per_task=2, ntasks=4), 3)],
        ids=["another sum", "other GPUs per node", "half a task"],
    )
    async def test_a_pin_that_contradicts_the_request_is_refused(
        self, bench: SlurmBench, order: Order, gpus_per_node: int
    ) -> None:
        key, job = await submit_held(bench, order)
        failures = await bench.client.pin([Pin(key, _picked(bench, 2), gpus_per_node, job.request)])
        assert set(failures) == {key}
        assert failures[key].message
        assert (await seen(bench, key)).held

    async def test_exclusive_job_gets_its_node_whole(self, bench: SlurmBench) -> None:
        (node,) = _picked(bench, 1)
        key, job = await submit_held(bench, Order(gres=1, exclusive=True))
        assert await bench.client.pin([Pin(key, (node,), 1, job.request)]) == {}
        await bench.client.release([key])
        assert held_gpus(await running(bench, key)) == {node: GPUS_PER_NODE}

    async def test_a_pinned_job_waits_for_its_release(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1))
        assert await bench.client.pin([Pin(key, _picked(bench, 1), 1, job.request)]) == {}
        await bench.wait(2.0)
        after = await seen(bench, key)
        assert (after.phase, after.held) == (Phase.PENDING, True)

    async def test_several_jobs_in_one_call(self, bench: SlurmBench) -> None:
        jobs = [await submit_held(bench, Order(gres=GPUS_PER_NODE)) for _ in bench.nodes[:4]]
        pins = [
            Pin(key, (node,), GPUS_PER_NODE, job.request)
            for (key, job), node in zip(jobs, reversed(bench.nodes[:4]), strict=True)
        ]
        assert await bench.client.pin(pins) == {}
        assert await bench.client.release([pin.key for pin in pins]) == {}
        for pin in pins:
            assert held_gpus(await running(bench, pin.key)) == {pin.nodes[0]: GPUS_PER_NODE}

    async def test_a_pin_can_be_changed(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gpus=6))
        for count in (2, 1, 3):
            assert await bench.client.pin([Pin(key, _picked(bench, count), 6 // count, job.request)]) == {}
        await bench.client.release([key])
        assert held_gpus(await running(bench, key)) == dict.fromkeys(_picked(bench, 3), 2)

    async def test_a_pin_of_tasks_with_gpus_of_their_own_can_be_changed(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gpus_per_task=1, ntasks=4))
        for count in (2, 1, 4, 2):
            assert await bench.client.pin([Pin(key, _picked(bench, count), 4 // count, job.request)]) == {}
        await bench.client.release([key])
        assert held_gpus(await running(bench, key)) == dict.fromkeys(_picked(bench, 2), 2)

    @pytest.mark.parametrize("form", FORMS)
    async def test_unpin_gives_the_request_back(self, bench: SlurmBench, form: str) -> None:
        key, job = await submit_held(bench, FORMS[form](2))
        assert await bench.client.pin([Pin(key, _picked(bench, 2), GPUS, job.request)]) == {}
        assert await bench.client.unpin({key: job.request}) == {}
        assert _same_request(await seen(bench, key), job.request)
        await bench.client.release([key])
        assert sum(held_gpus(await running(bench, key)).values()) == 2 * GPUS

    async def test_unpin_gives_the_users_node_lists_back(self, bench: SlurmBench) -> None:
        first, second, third, _ = bench.nodes[:4]
        key, job = await submit_held(bench, Order(gres=1, nodes=2, nodelist=(second,), exclude=(third,)))
        assert await bench.client.pin([Pin(key, (first, second), 1, job.request)]) == {}
        assert await bench.client.unpin({key: job.request}) == {}
        assert (await seen(bench, key)).request == job.request

    async def test_unpin_frees_the_number_of_nodes(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gpus=4))
        assert await bench.client.pin([Pin(key, bench.nodes[:4], 1, job.request)]) == {}
        assert await bench.client.unpin({key: job.request}) == {}
        await bench.client.release([key])
        assert sum(held_gpus(await running(bench, key)).values()) == 4

    async def test_a_wrong_node_fails_alone(self, bench: SlurmBench) -> None:
        bad, bad_job = await submit_held(bench, Order(gres=1))
        good, good_job = await submit_held(bench, Order(gres=1))
        node = bench.nodes[3]
        failures = await bench.client.pin(
            [Pin(bad, ("nosuchnode",), 1, bad_job.request), Pin(good, (node,), 1, good_job.request)]
        )
        assert set(failures) == {bad}
        assert failures[bad].message
        assert not failures[bad].gone
        assert (await seen(bench, bad)).held
        await bench.client.release([good])
        assert held_gpus(await running(bench, good)) == {node: 1}

    async def test_running_jobs_cannot_be_pinned(self, bench: SlurmBench) -> None:
        key, job = await submit_running(bench, Order(gres=1))
        assert set(await bench.client.pin([Pin(key, (bench.nodes[3],), 1, job.request)])) == {key}
        assert (await seen(bench, key)).phase is Phase.RUNNING

    async def test_pinning_ends_the_wait_after_a_requeue(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1))
        await bench.client.requeue_hold([key])
        job = await requeued(bench, before)
        node = bench.nodes[2]
        assert await bench.client.pin([Pin(job.key, (node,), 1, before.request)]) == {}
        await bench.client.release([job.key])
        assert held_gpus(await running(bench, job.key)) == {node: 1}

    async def test_pinning_leaves_a_users_begin_time(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1, begin_in_s=3600))
        assert await bench.client.pin([Pin(key, (bench.nodes[2],), 1, job.request)]) == {}
        await bench.client.release([key])
        await bench.wait(2.0)
        after = await seen(bench, key)
        assert after.phase is Phase.PENDING
        assert after.eligible_time_s is not None
        assert after.eligible_time_s > await bench.now() + 3000

    async def test_a_job_pinned_to_a_busy_node_waits_and_does_not_block_others(self, bench: SlurmBench) -> None:
        busy, free = bench.nodes[:2]
        blocker, _ = await submit_running(bench, Order(gres=GPUS_PER_NODE, nodelist=(busy,)))
        waits, waits_job = await submit_held(bench, Order(gres=4))
        runs, runs_job = await submit_held(bench, Order(gres=4))
        pins = [Pin(waits, (busy,), 4, waits_job.request), Pin(runs, (free,), 4, runs_job.request)]
        assert await bench.client.pin(pins) == {}
        assert await bench.client.release([waits, runs]) == {}
        assert held_gpus(await running(bench, runs)) == {free: 4}
        assert (await seen(bench, waits)).phase is Phase.PENDING
        await bench.cancel(blocker)
        assert held_gpus(await running(bench, waits)) == {busy: 4}

    async def test_a_job_pinned_to_a_drained_node_shows_its_reason_and_runs_after_resume(
        self, bench: SlurmBench
    ) -> None:
        node = bench.nodes[2]
        key, job = await submit_held(bench, Order(gres=1))
        await bench.client.pin([Pin(key, (node,), 1, job.request)])
        await bench.drain(node)
        await bench.client.release([key])
        await bench.wait_until(lambda now: job_of(now, key.job_id).reason.startswith("ReqNodeNotAvail"))
        await bench.resume(node)
        assert held_gpus(await running(bench, key)) == {node: 1}

    async def test_a_release_that_limits_refuse_is_visible(self, bench: SlurmBench) -> None:
        if "gpu-limit" not in bench.offers:
            pytest.skip("this bench has no GPU limits")
        key = await bench.submit_over_limit()
        job = await seen(bench, key)
        assert await bench.client.mark([key], HOLD_MARK) == {}
        await bench.client.pin([Pin(key, (bench.nodes[0],), job.request.gpus_per_node, job.request)])
        assert await bench.client.release([key]) == {}
        snapshot = await bench.wait_until(lambda now: job_of(now, key.job_id).reason not in {"None", "Priority"})
        after = job_of(snapshot, key.job_id)
        assert (after.phase, after.held) == (Phase.PENDING, False)
        assert after.reason.startswith(("Assoc", "QOS"))
        assert await bench.client.hold([key]) == {}
        assert (await seen(bench, key)).held

    async def test_a_release_that_the_partition_refuses_is_visible(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1, partition=bench.short_partition, time_limit_s=1200))
        await bench.client.pin([Pin(key, (bench.nodes[0],), 1, job.request)])
        assert await bench.client.release([key]) == {}
        await bench.wait_until(lambda now: job_of(now, key.job_id).reason == "PartitionTimeLimit")
