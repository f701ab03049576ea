"""The snapshot of queue and cluster that a client reads."""

from __future__ import annotations

import pytest

from controller.slurm.model.job import JobKey, Phase
from controller.slurm.model.marks import HOLD_MARK
from tests.contract.bench import FEATURES, GPUS_PER_NODE, SHORT_MAX_TIME_S, Order, SlurmBench, held_gpus, job_of
from tests.contract.steps import ended, submit_held, submit_running

NO_MAXIMUM = -1
"""For max_nodes of jobs without --nodes: none, or the least number of nodes. Newer releases show that as the maximum of some held
jobs (24.11: of one node; 26.05: with --ntasks-per-node too), and no job needs more."""

REQUESTS: dict[str, tuple[Order, dict[str, object]]] = {
    "gres": (
        Order(gres=2),
        {"gpus_per_node": 2, "min_nodes": 1, "max_nodes": NO_MAXIMUM, "num_tasks": 1, "num_cpus": 1},
    ),
    "gres, nodes": (Order(gres=2, nodes=2), {"gpus_per_node": 2, "min_nodes": 2, "max_nodes": 2, "num_tasks": 2}),
    "gpus per node": (Order(gpus_per_node=3, nodes=1), {"gpus_per_node": 3, "min_nodes": 1, "max_nodes": 1}),
    "gpus": (Order(gpus=12), {"gpus_per_job": 12, "min_nodes": 1, "max_nodes": 0}),
    "gpus, node range": (Order(gpus=6, nodes=(1, 3)), {"gpus_per_job": 6, "min_nodes": 1, "max_nodes": 3}),
    "gpus per task": (Order(gpus_per_task=1, ntasks=4), {"gpus_per_task": 1, "num_tasks": 4, "num_cpus": 4}),
    "tasks, cpus": (Order(gres=1, ntasks=2, cpus_per_task=4), {"gpus_per_node": 1, "num_tasks": 2, "num_cpus": 8}),
    "tasks per node": (
        Order(gres=2, ntasks=4, ntasks_per_node=2),
        {"gpus_per_node": 2, "min_nodes": 2, "max_nodes": NO_MAXIMUM, "num_tasks": 4, "tasks_per_node": 2},
    ),
    "memory": (Order(gres=1, memory_mib=2048), {"memory_mib_per_node": 2048, "memory_mib_per_cpu": None}),
    "no gpus": (Order(ntasks=2), {"gpus_per_node": None, "gpus_per_job": None, "gpus_per_task": None, "num_tasks": 2}),
}


class Reading:
    """facts, snapshot, read."""

    async def test_facts_have_version_and_client(self, bench: SlurmBench) -> None:
        facts = await bench.client.facts()
        assert facts.version >= (22, 5, 0)
        assert facts.cluster_name
        assert facts.client in {"command-line", "pyslurm", "embedded"}

    async def test_nodes_and_partitions(self, bench: SlurmBench) -> None:
        snapshot = await bench.client.snapshot()
        nodes = {node.name: node for node in snapshot.nodes}
        assert tuple(nodes) == bench.nodes
        for name, feature in zip(bench.nodes, FEATURES, strict=False):
            node = nodes[name]
            assert node.available
            assert (node.gpus, feature in node.features) == (GPUS_PER_NODE, True)
            assert node.cpus >= 16
            assert node.memory_mib > 0
            assert bench.short_partition in node.partitions
        short = {partition.name: partition for partition in snapshot.partitions}[bench.short_partition]
        assert (short.up, short.max_time_s, short.nodes) == (True, SHORT_MAX_TIME_S, frozenset(bench.nodes))
        assert abs(snapshot.time_s - await bench.now()) < 60

    @pytest.mark.parametrize("form", REQUESTS)
    async def test_request_of_each_form(self, bench: SlurmBench, form: str) -> None:
        order, expected = REQUESTS[form]
        _, job = await submit_held(bench, order)
        found = {name: getattr(job.request, name) for name in expected}
        if expected.get("max_nodes") == NO_MAXIMUM and found["max_nodes"] in {0, job.request.min_nodes}:
            found["max_nodes"] = NO_MAXIMUM
        assert found == expected

    async def test_tasks_that_need_more_gpus_than_a_node_has_are_not_bound_to_one(self, bench: SlurmBench) -> None:
        _, job = await submit_held(bench, Order(gpus_per_task=1, ntasks=2 * GPUS_PER_NODE))
        assert job.request.max_nodes == 0 or job.request.max_nodes >= 2

    async def test_node_lists(self, bench: SlurmBench) -> None:
        first, second = bench.nodes[:2]
        _, job = await submit_held(bench, Order(gres=1, nodelist=(first,), exclude=(second,)))
        assert (job.request.required_nodes, job.request.excluded_nodes) == ((first,), (second,))

    async def test_fields_of_a_held_job(self, bench: SlurmBench) -> None:
        key, job = await submit_held(
            bench,
            Order(
                gres=1,
                name="resnet",
                comment="headway:preemptible=no",
                admin_comment="billing=7",
                constraint="fast",
                exclusive=True,
                requeue=False,
                time_limit_s=300,
                partition=bench.short_partition,
            ),
        )
        assert job.key == key
        assert (job.phase, job.state, job.held, job.reason) == (Phase.PENDING, "PENDING", True, "JobHeldUser")
        assert (job.name, job.comment, job.admin_comment) == (
            "resnet",
            "headway:preemptible=no",
            f"billing=7 {HOLD_MARK}",
        )
        assert (job.features, job.exclusive, job.requeue) == ("fast", True, False)
        assert (job.time_limit_s, job.partition, job.batch) == (300, bench.short_partition, True)
        assert (job.restarts, job.start_time_s, job.allocated) == (0, None, ())
        assert (job.array_job_id, job.het_job_id, job.marks) == (None, None, {HOLD_MARK})
        assert job.user
        assert abs(key.submit_time_s - await bench.now()) < 60

    async def test_other_jobs_are_not_exclusive_and_may_be_requeued(self, bench: SlurmBench) -> None:
        _, job = await submit_held(bench, Order(gres=1))
        assert (job.exclusive, job.requeue, job.features, job.reservation, job.dependency) == (False, True, "", "", "")
        assert job.licenses == ""

    async def test_a_running_job_shows_what_it_holds(self, bench: SlurmBench) -> None:
        _, job = await submit_running(bench, Order(gres=3, nodes=2))
        assert sorted(held_gpus(job).values()) == [3, 3]
        assert all(share.gpu_mask.bit_count() in {0, 3} and share.cpus >= 1 for share in job.allocated)
        assert job.start_time_s is not None
        assert not job.held

    async def test_two_jobs_on_a_node_hold_different_gpus(self, bench: SlurmBench) -> None:
        node = bench.nodes[0]
        _, one = await submit_running(bench, Order(gres=3, nodelist=(node,)))
        _, other = await submit_running(bench, Order(gres=4, nodelist=(node,)))
        assert one.allocated[0].gpu_mask & other.allocated[0].gpu_mask == 0

    async def test_array_tasks_are_jobs_of_their_own(self, bench: SlurmBench) -> None:
        first, _ = await submit_held(bench, Order(gres=1, array=(0, 2, 3), throttle=2))
        array_id = first.job_id.partition("_")[0]
        jobs = [job for job in (await bench.client.snapshot()).jobs if job.array_job_id == int(array_id)]
        assert {job.key for job in jobs} == {JobKey(f"{array_id}_{task}", first.submit_time_s) for task in (0, 2, 3)}
        assert all(job.held and job.request.gpus_per_node == 1 for job in jobs)

    async def test_begin_time(self, bench: SlurmBench) -> None:
        begin_s = await bench.now() + 3600
        key = await bench.submit(Order(gres=1, begin_in_s=3600))
        snapshot = await bench.wait_until(lambda seen: job_of(seen, key.job_id).reason == "BeginTime")
        eligible_s = job_of(snapshot, key.job_id).eligible_time_s
        assert eligible_s is not None
        assert abs(eligible_s - begin_s) < 30

    async def test_dependency(self, bench: SlurmBench) -> None:
        first, _ = await submit_held(bench, Order(gres=1))
        key = await bench.submit(Order(gres=1, dependency=f"afterok:{first.job_id}"))
        snapshot = await bench.wait_until(lambda seen: job_of(seen, key.job_id).reason == "Dependency")
        job = job_of(snapshot, key.job_id)
        assert job.dependency.startswith(f"afterok:{first.job_id}")
        assert not job.held

    async def test_dependency_clears_when_it_is_fulfilled(self, bench: SlurmBench) -> None:
        first = await bench.submit(Order(gres=1, duration_s=2))
        key = await bench.submit(Order(gres=1, dependency=f"afterok:{first.job_id}"))
        snapshot = await bench.wait_until(lambda seen: job_of(seen, key.job_id).phase is Phase.RUNNING)
        assert job_of(snapshot, first.job_id).state == "COMPLETED"
        assert job_of(snapshot, key.job_id).dependency == ""

    async def test_licenses(self, bench: SlurmBench) -> None:
        if "licenses" not in bench.offers:
            pytest.skip("this bench has no licenses")
        _, running = await submit_running(bench, Order(gres=1, licenses="matlab:1"))
        assert running.licenses == "matlab:1"
        key = await bench.submit(Order(gres=1, licenses="matlab:1"))
        await bench.wait_until(lambda seen: job_of(seen, key.job_id).reason == "Licenses")

    async def test_reservation(self, bench: SlurmBench) -> None:
        if "reservations" not in bench.offers:
            pytest.skip("this bench cannot reserve nodes")
        node = bench.nodes[3]
        await bench.reserve("course", (node,), 600)
        _, job = await submit_held(bench, Order(gres=1, reservation="course"))
        snapshot = await bench.client.snapshot()
        reservation = {found.name: found for found in snapshot.reservations}["course"]
        assert reservation.nodes == {node}
        assert 540 <= reservation.end_time_s - reservation.start_time_s <= 660
        assert job.reservation == "course"
        await bench.cancel(job.key)
        await bench.wait_until(lambda seen: job_of(seen, job.key.job_id).phase is Phase.ENDED)
        await bench.unreserve("course")
        assert (await bench.client.snapshot()).reservations == ()

    async def test_ended_jobs_stay_for_a_while(self, bench: SlurmBench) -> None:
        good = await bench.submit(Order(gres=1, duration_s=1))
        bad = await bench.submit(Order(gres=1, duration_s=1, exit_code=3))
        snapshot = await bench.wait_until(lambda seen: ended(seen, good) and ended(seen, bad))
        job = job_of(snapshot, good.job_id)
        assert (job.state, job_of(snapshot, bad.job_id).state) == ("COMPLETED", "FAILED")
        assert job.start_time_s is not None
        assert job.end_time_s is not None
        assert job.end_time_s >= job.start_time_s
        assert not job.phase.occupies_nodes

    async def test_cancelled_jobs_have_ended(self, bench: SlurmBench) -> None:
        waiting, _ = await submit_held(bench, Order(gres=1))
        running, _ = await submit_running(bench, Order(gres=1))
        for key in (waiting, running):
            await bench.cancel(key)
        snapshot = await bench.wait_until(lambda seen: ended(seen, waiting) and ended(seen, running))
        assert job_of(snapshot, waiting.job_id).state.startswith("CANCELLED")
        assert job_of(snapshot, running.job_id).state.startswith("CANCELLED")

    async def test_het_jobs_are_flagged(self, bench: SlurmBench) -> None:
        if "het" not in bench.offers:
            pytest.skip("this bench has no het jobs")
        leader = await bench.submit_het()
        parts = [job for job in (await bench.client.snapshot()).jobs if job.het_job_id == int(leader)]
        assert len(parts) == 2

    async def test_interactive_jobs_are_flagged(self, bench: SlurmBench) -> None:
        if "interactive" not in bench.offers:
            pytest.skip("this bench has no interactive jobs")
        job_id = await bench.submit_interactive()
        snapshot = await bench.wait_until(lambda seen: job_of(seen, job_id).phase is Phase.RUNNING)
        assert not job_of(snapshot, job_id).batch

    async def test_drained_and_down_nodes_are_not_available(self, bench: SlurmBench) -> None:
        drained, down = bench.nodes[:2]
        await bench.drain(drained)
        await bench.down(down)
        nodes = {node.name: node for node in (await bench.client.snapshot()).nodes}
        assert [node.name for node in nodes.values() if not node.available] == [drained, down]
        assert "DRAIN" in nodes[drained].state
        assert "DOWN" in nodes[down].state
        assert nodes[drained].reason
        for name in (drained, down):
            await bench.resume(name)
        assert all(node.available for node in (await bench.client.snapshot()).nodes)

    async def test_read_answers_for_those_that_are_there(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1))
        other, _ = await submit_held(bench, Order(gres=1, array=(1, 2)))
        stale = key._replace(submit_time_s=key.submit_time_s - 1)
        unknown = JobKey("999999", key.submit_time_s)
        found = await bench.client.read([key, other, stale, unknown])
        assert set(found) == {key, other}
        assert found[key] == job
        assert await bench.client.read([]) == {}
