"""Slurm's own scheduling in the embedded Slurm: what a cluster does without Headway."""

from __future__ import annotations

from controller.slurm.client import Pin
from controller.slurm.embedded import (
    ClusterDescription,
    GpuLimit,
    NodeDescription,
    PartitionDescription,
    sbatch_request,
)
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK
from tests.unit.controller.worlds.embedded import Lab


async def test_first_come_first_served() -> None:
    lab = Lab()
    keys = [lab.sbatch(gpus=8, nodes=4, duration_s=100, time_limit_s=200) for _ in range(3)]
    await lab.pass_time(320)
    starts = [lab.started_at(key) for key in keys]
    assert starts == sorted(starts)
    assert starts[2] >= 200


async def test_backfill_starts_short_jobs_and_delays_no_other() -> None:
    # given: half the cluster busy until 100 s, and a job that needs all of it
    lab = Lab()
    lab.sbatch(gpus=8, nodes=2, duration_s=100, time_limit_s=100)
    big = lab.sbatch(gpus=8, nodes=4, duration_s=100, time_limit_s=100)
    # when: a job that ends before then comes, and one that does not
    short = lab.sbatch(gpus=8, duration_s=50, time_limit_s=60)
    long = lab.sbatch(gpus=8, duration_s=50, time_limit_s=600)
    await lab.pass_time(1)
    assert (lab.reason(big), lab.reason(short), lab.reason(long)) == ("Resources", "Priority", "Priority")
    await lab.pass_time(20)
    # then: only the first starts, and the big job starts when it would have
    assert lab.phase(short) is Phase.RUNNING
    assert lab.phase(long) is Phase.PENDING
    await lab.pass_time(85)
    assert lab.phase(big) is Phase.RUNNING
    assert lab.started_at(big) < 102
    await lab.pass_time(110)
    assert lab.phase(long) is Phase.RUNNING


async def test_backfill_uses_nodes_that_the_waiting_job_will_not_need() -> None:
    lab = Lab()
    lab.sbatch(gpus=8, nodes=3, duration_s=100, time_limit_s=100)
    waits = lab.sbatch(gpus=6, nodes=4, duration_s=100, time_limit_s=100)
    fits_beside = lab.sbatch(gpus=2, duration_s=1000, time_limit_s=2000)
    in_the_way = lab.sbatch(gpus=3, duration_s=1000, time_limit_s=2000)
    await lab.pass_time(50)
    assert lab.phase(fits_beside) is Phase.RUNNING
    assert lab.phase(in_the_way) is Phase.PENDING
    await lab.pass_time(55)
    assert lab.phase(waits) is Phase.RUNNING


async def test_a_job_is_backfilled_beside_one_with_the_same_request_that_the_nodes_do_not_suit() -> None:
    # Given a job that waits although GPUs are free: something else that it needs is taken on each node
    lab = Lab()
    waits = lab.sbatch(gpus=1, nodes=2, duration_s=10, unfit_nodes=frozenset({"n1", "n2", "n3", "n4"}))
    # When a job with the same request comes that the nodes do suit
    fits = lab.sbatch(gpus=1, nodes=2, duration_s=1000)
    await lab.pass_time(50)
    # Then backfill starts it
    assert lab.phase(waits) is Phase.PENDING
    assert lab.phase(fits) is Phase.RUNNING


async def test_jobs_without_a_limit_are_not_backfilled_into_a_planned_start() -> None:
    lab = Lab()
    lab.sbatch(gpus=8, nodes=2, duration_s=100, time_limit_s=100)
    lab.sbatch(gpus=8, nodes=4, duration_s=100, time_limit_s=100)
    endless = lab.sbatch(gpus=8, duration_s=10)
    await lab.pass_time(50)
    assert lab.phase(endless) is Phase.PENDING


async def test_a_released_job_goes_behind_the_others() -> None:
    lab = Lab()
    lab.sbatch(gpus=8, nodes=4, duration_s=100)
    early = lab.sbatch(gpus=8, nodes=4, duration_s=100, hold=True, admin_comment=HOLD_MARK)
    late = lab.sbatch(gpus=8, nodes=4, duration_s=100)
    await lab.client.release([early])
    await lab.pass_time(310)
    assert lab.started_at(late) < lab.started_at(early)


async def test_full_partition_does_not_block_another() -> None:
    lab = Lab(
        ClusterDescription(
            partitions=(
                PartitionDescription(name="a", nodes="n[1-2]"),
                PartitionDescription(name="b", nodes="n[3-4]"),
            )
        )
    )
    lab.sbatch(gpus=8, nodes=2, partition="a")
    waits = lab.sbatch(gpus=8, nodes=2, partition="a")
    other = lab.sbatch(gpus=8, nodes=2, partition="b")
    either = lab.sbatch(gpus=1, partition="a,b")
    await lab.pass_time(1)
    assert lab.reason(waits) == "Resources"
    assert (lab.phase(other), lab.nodes(other)) == (Phase.RUNNING, ("n3", "n4"))
    assert lab.phase(either) is Phase.PENDING


async def test_features_exclusive_and_node_lists() -> None:
    lab = Lab(
        ClusterDescription(
            nodes=(
                NodeDescription(names="n1", features=("fast", "nvlink")),
                NodeDescription(names="n[2-3]", features=("slow",)),
            )
        )
    )
    both = lab.sbatch(features="fast&nvlink")
    either = lab.sbatch(features="nvlink|slow", request=sbatch_request(gpus_per_node=1, exclude=("n1",)))
    alone = lab.sbatch(exclusive=True)
    nowhere = lab.sbatch(features="fast&slow")
    too_big = lab.sbatch(gpus=9)
    await lab.pass_time(1)
    assert (lab.nodes(both), lab.nodes(either), lab.nodes(alone)) == (("n1",), ("n2",), ("n3",))
    assert lab.job(alone).num_gpus == 8
    assert (lab.reason(nowhere), lab.reason(too_big)) == ("BadConstraints", "BadConstraints")


async def test_limits_hold_back_a_released_job_with_their_reason() -> None:
    lab = Lab(
        ClusterDescription(
            limits=(
                GpuLimit(user="alice", gpus=4),
                GpuLimit(user="bob", gpus=2, reason="QOSMaxGRESPerUser"),
            )
        )
    )
    first, second = lab.sbatch(gpus=3, duration_s=50), lab.sbatch(gpus=2)
    bobs = lab.sbatch(request=sbatch_request(gpus=3), user="bob")
    carols = lab.sbatch(gpus=8, user="carol")
    await lab.pass_time(10)
    assert (lab.phase(first), lab.reason(second), lab.reason(bobs)) == (
        Phase.RUNNING,
        "AssocGrpGRES",
        "QOSMaxGRESPerUser",
    )
    assert lab.phase(carols) is Phase.RUNNING
    await lab.pass_time(60)
    assert lab.phase(second) is Phase.RUNNING


async def test_licenses_are_counted() -> None:
    lab = Lab(ClusterDescription(licenses={"matlab": 2}))
    keys = [lab.sbatch(licenses={"matlab": 1}, duration_s=20) for _ in range(3)]
    await lab.pass_time(1)
    assert [lab.reason(key) for key in keys] == ["None", "None", "Licenses"]
    await lab.pass_time(21)
    assert lab.phase(keys[2]) is Phase.RUNNING


async def test_reservations_keep_others_out_before_they_begin_and_while_they_last() -> None:
    lab = Lab(ClusterDescription(nodes=(NodeDescription(names="n1"),)))
    lab.slurm.reserve("course", ("n1",), lab.start_s + 100, lab.start_s + 200)
    fits_before = lab.sbatch(duration_s=50, time_limit_s=60)
    too_long = lab.sbatch(duration_s=50, time_limit_s=300)
    inside = lab.sbatch(duration_s=20, time_limit_s=30, reservation="course")
    await lab.pass_time(20)
    assert (lab.phase(fits_before), lab.phase(too_long), lab.phase(inside)) == (
        Phase.RUNNING,
        Phase.PENDING,
        Phase.PENDING,
    )
    await lab.pass_time(90)
    assert lab.phase(inside) is Phase.RUNNING
    await lab.pass_time(100)
    assert lab.phase(too_long) is Phase.RUNNING
    assert (await lab.client.snapshot()).reservations == ()


async def test_maintenance_shows_in_the_nodes_state() -> None:
    lab = Lab()
    lab.slurm.reserve("repair", ("n2",), lab.start_s, lab.start_s + 100, maintenance=True)
    lab.sbatch(gpus=8)
    lab.sbatch(gpus=3, request=sbatch_request(gpus_per_node=3, nodelist=("n3",)))
    await lab.pass_time(1)
    nodes = {node.name: node for node in (await lab.client.snapshot()).nodes}
    assert {name: node.state for name, node in nodes.items()} == {
        "n1": "ALLOCATED",
        "n2": "IDLE+MAINTENANCE+RESERVED",
        "n3": "MIXED",
        "n4": "IDLE",
    }
    assert all(node.available for node in nodes.values())


async def test_jobs_pinned_to_a_waiting_jobs_nodes_wait_behind_it() -> None:
    lab = Lab()
    lab.sbatch(gpus=8, nodes=1, duration_s=50, request=sbatch_request(gpus_per_node=8, nodelist=("n1",)))
    await lab.pass_time(1)
    first, second = (lab.sbatch(gpus=gpus, hold=True, admin_comment=HOLD_MARK) for gpus in (8, 1))
    for key in (first, second):
        request = lab.job(key).request
        assert await lab.client.pin([Pin(key, ("n1",), request.gpus_per_node, request)]) == {}
    await lab.client.release([first, second])
    await lab.pass_time(60)
    assert lab.started_at(first) >= 50
    assert lab.phase(second) is Phase.PENDING
