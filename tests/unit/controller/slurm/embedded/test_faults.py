"""Accidents on order: what a controller has to live through."""

from __future__ import annotations

from itertools import pairwise

import pytest

from controller.base.errors import SlurmError, SlurmUnavailableError
from controller.slurm.client import Pin
from controller.slurm.embedded import ClusterDescription, Delays
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK
from tests.unit.controller.worlds.embedded import Lab


async def test_an_unavailable_slurmctld_gives_no_answer_and_changes_nothing() -> None:
    lab = Lab()
    key = lab.sbatch(hold=True, admin_comment=HOLD_MARK)
    with lab.slurm.faults.unavailable():
        for call in (lab.client.snapshot(), lab.client.facts(), lab.client.read([key]), lab.client.release([key])):
            with pytest.raises(SlurmUnavailableError):
                await call
    assert lab.job(key).held
    assert await lab.client.release([key]) == {}


async def test_refused_lost_before_and_lost_after() -> None:
    lab = Lab()
    faults, key = lab.slurm.faults, lab.sbatch(hold=True)
    faults.refuse_next("mark", "Access/permission denied")
    faults.lose_request("mark")
    faults.lose_reply("mark")
    assert (await lab.client.mark([key], HOLD_MARK))[key].message == "Access/permission denied"
    with pytest.raises(SlurmUnavailableError):
        await lab.client.mark([key], HOLD_MARK)
    assert lab.job(key).admin_comment == ""
    with pytest.raises(SlurmUnavailableError):
        await lab.client.mark([key], HOLD_MARK)
    assert lab.job(key).admin_comment == HOLD_MARK
    assert await lab.client.mark([key], HOLD_MARK) == {}, "each fault happens once"


async def test_cut_short_in_the_middle_of_a_batch() -> None:
    lab = Lab()
    keys = [lab.sbatch(hold=True, admin_comment=HOLD_MARK) for _ in range(3)]
    lab.slurm.faults.cut_short("release", jobs_done=2)
    with pytest.raises(SlurmUnavailableError):
        await lab.client.release(keys)
    assert [lab.job(key).held for key in keys] == [False, False, True]


async def test_slow_replies_take_the_clusters_time() -> None:
    lab = Lab(ClusterDescription(delays=Delays(call_s=0.5)))
    lab.slurm.faults.slow("snapshot", 20.0)

    async def story() -> list[float]:
        times = [lab.clock.now()]
        for call in (lab.client.facts, lab.client.snapshot):
            await call()
            times.append(lab.clock.now())
        return [after - before for before, after in pairwise(times)]

    assert await lab.clock.run(story()) == [0.5, 20.5]


async def test_calls_are_recorded() -> None:
    lab = Lab()
    key = lab.sbatch(hold=True)
    await lab.client.snapshot()
    await lab.pass_time(1)
    await lab.client.release([key])
    calls = [(call.time_s - lab.start_s, call.verb, call.job_ids) for call in lab.slurm.faults.calls]
    assert calls == [(0, "snapshot", ()), (1, "release", (key.job_id,))]


async def test_a_crash_loses_the_newest_jobs_and_issues_their_ids_again() -> None:
    lab = Lab()
    kept, lost = lab.sbatch(duration_s=1000), lab.sbatch(duration_s=1000)
    await lab.pass_time(5)
    assert lab.slurm.crash_slurmctld(lose_newest=1, away_s=3) == [lost]
    with pytest.raises(SlurmUnavailableError):
        await lab.client.snapshot()
    with pytest.raises(SlurmError):
        lab.sbatch()
    await lab.pass_time(3)
    snapshot = await lab.client.snapshot()
    assert [job.key for job in snapshot.jobs] == [kept]
    assert {node.state for node in snapshot.nodes} == {"UNKNOWN"}
    assert snapshot.jobs[0].phase is Phase.RUNNING, "running jobs survive slurmctld"
    again = lab.sbatch(duration_s=500)
    assert (again.job_id, again == lost) == (lost.job_id, False)
    assert (await lab.client.release([lost]))[lost].gone
    await lab.pass_time(5)
    assert lab.phase(again) is Phase.RUNNING
    await lab.pass_time(495)
    assert lab.phase(again) is Phase.RUNNING, "the lost run's end is not taken for the new one's"


async def test_ids_of_jobs_that_outlived_a_crash_are_not_issued_again() -> None:
    # given tasks of an array whose own ids are later than that of a job which slurmctld forgets
    lab = Lab()
    lab.slurm.set_partition("dl", up=False)
    lab.sbatch(duration_s=1000, array=(0, 1))
    lost = lab.sbatch(duration_s=1000)
    lab.slurm.set_partition("dl", up=True)
    await lab.pass_time(5)
    tasks = [job.raw_id for job in (await lab.client.snapshot()).jobs if job.array_job_id is not None]
    assert tasks == [3, 4]
    lab.slurm.crash_slurmctld(lose_newest=1, away_s=3)
    await lab.pass_time(10)
    # when jobs are submitted again, then only the lost one's id is free
    assert [lab.sbatch().job_id for _ in range(2)] == [lost.job_id, "5"]


async def test_jobs_of_a_dead_node_are_pending_again_as_in_slurm() -> None:
    lab = Lab()
    may, may_not = lab.sbatch(gpus=4, nodes=2, duration_s=1000), lab.sbatch(gpus=4, requeue=False, duration_s=1000)
    await lab.pass_time(5)
    assert "n1" in lab.nodes(may)
    lab.slurm.node_down("n1")
    assert (lab.phase(may), lab.job(may).held, lab.job(may).restarts) == (Phase.PENDING, False, 1)
    assert lab.state(may_not) == "NODE_FAIL"
    await lab.pass_time(118)
    assert lab.reason(may) == "BeginTime"
    await lab.pass_time(10)
    assert lab.phase(may) is Phase.RUNNING
    assert "n1" not in lab.nodes(may)
    states = {node.name: node.state for node in (await lab.client.snapshot()).nodes}
    assert states["n1"] == "DOWN*"


async def test_a_cancelled_job_whose_node_dies_before_it_has_ended_is_not_requeued() -> None:
    lab = Lab()
    key = lab.sbatch(gpus=4, duration_s=1000, traps=frozenset({"TERM"}))
    await lab.pass_time(5)
    lab.slurm.cancel(key.job_id)
    await lab.pass_time(1)
    lab.slurm.node_down(lab.nodes(key)[0])
    await lab.pass_time(300)
    assert (lab.state(key), lab.job(key).restarts) == ("CANCELLED", 0)


async def test_dependencies_do_not_remember_a_job_whose_id_was_issued_again() -> None:
    lab = Lab()
    lost = lab.sbatch()
    lab.slurm.cancel(lost.job_id)
    assert lab.slurm.crash_slurmctld(lose_newest=1, away_s=1) == [lost]
    await lab.pass_time(5)
    array = lab.sbatch(duration_s=10, array=(0, 1))
    assert array.job_id == f"{lost.job_id}_0"
    after = lab.sbatch(dependency=f"afterok:{lost.job_id}", duration_s=10)
    await lab.pass_time(60)
    assert lab.state(after) == "COMPLETED"


async def test_drained_nodes_finish_what_they_run() -> None:
    lab = Lab()
    key = lab.sbatch(gpus=8, duration_s=50)
    await lab.pass_time(5)
    lab.slurm.node_drain("n1", "bad link")
    node = (await lab.client.snapshot()).nodes[0]
    assert (node.state, node.available, node.reason) == ("ALLOCATED+DRAIN", False, "bad link")
    await lab.pass_time(60)
    assert lab.state(key) == "COMPLETED"
    pinned = lab.sbatch(hold=True, admin_comment=HOLD_MARK)
    await lab.client.pin([Pin(pinned, ("n1",), 1, lab.job(pinned).request)])
    await lab.client.release([pinned])
    await lab.pass_time(5)
    assert lab.reason(pinned) == "ReqNodeNotAvail, UnavailableNodes:n1"
    lab.slurm.node_resume("n1")
    await lab.pass_time(1)
    assert lab.nodes(pinned) == ("n1",)


async def test_a_held_running_job_stays_held_when_its_node_dies() -> None:
    lab = Lab()
    key = lab.sbatch(duration_s=1000)
    await lab.pass_time(5)
    lab.slurm.user_hold(key.job_id)
    lab.slurm.node_down("n1")
    assert lab.phase(key) is Phase.PENDING
    assert lab.job(key).held
