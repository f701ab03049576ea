"""The life of a job in the embedded Slurm, from submission to oblivion."""

from __future__ import annotations

import asyncio

import pytest

from controller.base.errors import SlurmError
from controller.slurm.embedded import ClusterDescription, Delays, EmbeddedSlurm, PartitionDescription, sbatch_request
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK
from tests.unit.controller.worlds.embedded import Lab


async def test_every_phase_in_its_time() -> None:
    lab = Lab(ClusterDescription(delays=Delays(schedule_s=1, launch_s=2, exit_s=3, min_job_age_s=60)))
    key = lab.sbatch(gpus=2, duration_s=100)
    seen = [(lab.phase(key), lab.nodes(key))]
    for seconds in (1, 2, 100, 3):
        await lab.pass_time(seconds)
        seen.append((lab.phase(key), lab.nodes(key)))
    assert seen == [
        (Phase.PENDING, ()),
        (Phase.CONFIGURING, ("n1",)),
        (Phase.RUNNING, ("n1",)),
        (Phase.COMPLETING, ("n1",)),
        (Phase.ENDED, ()),
    ]
    assert lab.state(key) == "COMPLETED"
    await lab.pass_time(60)
    assert (await lab.client.snapshot()).jobs == ()


async def test_clients_get_the_same_object_while_nothing_about_a_job_has_changed() -> None:
    lab = Lab()
    changed, other = (lab.sbatch(hold=True) for _ in range(2))
    before = {job.key: job for job in (await lab.client.snapshot()).jobs}
    assert await lab.client.mark([changed], HOLD_MARK) == {}
    after = {job.key: job for job in (await lab.client.snapshot()).jobs}
    assert after[other] is before[other]
    assert (after[changed].marks, before[changed].marks) == ({HOLD_MARK}, frozenset())


async def test_history_does_not_depend_on_the_number_of_readings() -> None:
    often, seldom = Lab(), Lab()
    keys = [
        (often.sbatch(gpus=8, nodes=2, duration_s=50), seldom.sbatch(gpus=8, nodes=2, duration_s=50)) for _ in range(5)
    ]
    for _ in range(400):
        await often.pass_time(0.5)
        await often.client.snapshot()
    await seldom.pass_time(200)
    assert [often.job(one).starts for one, _ in keys] == [seldom.job(other).starts for _, other in keys]


async def test_whoever_follows_the_accounting_may_ask_for_jobs_without_any_effect() -> None:
    """Each event is carried out whole: a question within it does not begin the next ones."""
    asked: list[Phase] = []
    plain = Lab()
    curious = Lab(accounting=lambda _what, job: asked.append(curious.slurm.job(job.job_id).phase))
    keys = [tuple(lab.sbatch(gpus=8, nodes=2, duration_s=50) for lab in (plain, curious)) for _ in range(5)]
    # when minutes pass before anybody looks, then all events of that time come at once
    for lab in (plain, curious):
        await lab.pass_time(300)
    assert [plain.job(one).starts for one, _ in keys] == [curious.job(other).starts for _, other in keys]
    assert all(plain.job(one).phase is Phase.ENDED for one, _ in keys)
    assert len(asked) == 10


async def test_a_job_ends_at_its_time_limit() -> None:
    lab = Lab()
    key = lab.sbatch(duration_s=1000, time_limit_s=60)
    await lab.pass_time(59)
    assert lab.phase(key) is Phase.RUNNING
    await lab.pass_time(2)
    assert lab.state(key) == "TIMEOUT"


async def test_the_partitions_limit_is_the_limit_of_jobs_that_give_none() -> None:
    lab = Lab(ClusterDescription(partitions=(PartitionDescription(name="short", max_time_s=120),)))
    key = lab.sbatch(duration_s=1000)
    assert lab.job(key).time_limit_s == 120
    await lab.pass_time(130)
    assert lab.state(key) == "TIMEOUT"


async def test_dependencies() -> None:
    lab = Lab()
    first = lab.sbatch(duration_s=10, name="first")
    bad = lab.sbatch(duration_s=10, exit_code=1)
    kinds = {
        "after": f"after:{first.job_id}",
        "ok": f"afterok:{first.job_id}",
        "any": f"afterany:{bad.job_id}",
        "notok": f"afternotok:{bad.job_id}",
        "never": f"afterok:{bad.job_id}",
        "both": f"afterok:{first.job_id},afterany:{bad.job_id}",
        "either": f"afterok:{first.job_id}?afterok:{bad.job_id}",
    }
    jobs = {kind: lab.sbatch(duration_s=5, dependency=text) for kind, text in kinds.items()}
    single = lab.sbatch(duration_s=5, name="first", dependency="singleton")
    await lab.pass_time(5)
    assert lab.phase(jobs["after"]) is Phase.RUNNING
    assert {lab.reason(jobs[kind]) for kind in kinds if kind != "after"} == {"Dependency"}
    assert lab.reason(single) == "Dependency"
    await lab.pass_time(7)
    running = {kind for kind, key in jobs.items() if lab.phase(key) is Phase.RUNNING}
    assert running == {"ok", "any", "notok", "both", "either"}
    assert lab.phase(single) is Phase.RUNNING
    assert lab.reason(jobs["never"]) == "DependencyNeverSatisfied"


async def test_dependency_on_an_array_waits_for_every_task() -> None:
    lab = Lab()
    first = lab.sbatch(duration_s=10, array=(0, 1, 2), throttle=1)
    after = lab.sbatch(dependency=f"afterok:{first.job_id.partition('_')[0]}")
    await lab.pass_time(25)
    assert lab.reason(after) == "Dependency"
    await lab.pass_time(10)
    assert lab.phase(after) is Phase.RUNNING


async def test_slurm_does_not_follow_dependencies_of_held_jobs() -> None:
    lab = Lab()
    first = lab.sbatch(duration_s=1)
    key = lab.sbatch(dependency=f"afterok:{first.job_id}", hold=True, admin_comment=HOLD_MARK)
    await lab.pass_time(10)
    shown = (await lab.client.read([key]))[key]
    assert (shown.dependency, shown.reason) == (f"afterok:{first.job_id}(unfulfilled)", "JobHeldUser")
    assert await lab.client.release([key]) == {}
    await lab.pass_time(1)
    assert (lab.phase(key), lab.job(key).dependency) == (Phase.RUNNING, "")


async def test_array_throttle() -> None:
    lab = Lab()
    lab.sbatch(duration_s=10, array=(0, 1, 2, 3), throttle=2)
    await lab.pass_time(5)
    states = [(lab.slurm.job(f"1_{task}").phase, lab.slurm.job(f"1_{task}").reason) for task in range(4)]
    assert states == [(Phase.RUNNING, "None")] * 2 + [(Phase.PENDING, "JobArrayTaskLimit")] * 2


async def test_begin_time() -> None:
    lab = Lab()
    key = lab.sbatch(begin_time_s=lab.start_s + 60)
    await lab.pass_time(59)
    assert (lab.phase(key), lab.reason(key)) == (Phase.PENDING, "BeginTime")
    await lab.pass_time(2)
    assert lab.phase(key) is Phase.RUNNING


async def test_partition_down_and_up() -> None:
    lab = Lab()
    lab.slurm.set_partition("dl", up=False)
    key = lab.sbatch()
    await lab.pass_time(1)
    assert lab.reason(key) == "PartitionDown"
    lab.slurm.set_partition("dl", up=True)
    await lab.pass_time(1)
    assert lab.phase(key) is Phase.RUNNING


async def test_a_requeue_delays_the_begin_time_and_gives_a_new_identity() -> None:
    lab = Lab()
    key = lab.sbatch(duration_s=1000)
    await lab.pass_time(10)
    lab.slurm.requeue(key.job_id)
    await lab.pass_time(1)
    job = lab.job(key)
    assert (job.phase, job.held, job.restarts, job.submit_time_s > key.submit_time_s) == (Phase.PENDING, False, 1, True)
    await lab.pass_time(119)
    assert lab.reason(key) == "BeginTime"
    await lab.pass_time(3)
    assert lab.phase(key) is Phase.RUNNING


@pytest.mark.parametrize(("saved_s", "left_s"), [(0.0, 100.0), (70.0, 30.0), (500.0, 1.0)])
async def test_a_later_run_does_not_repeat_the_work_that_was_saved(saved_s: float, left_s: float) -> None:
    lab = Lab(ClusterDescription(delays=Delays(schedule_s=0, launch_s=0, exit_s=0, requeue_s=5)))
    key = lab.sbatch(duration_s=100)
    await lab.pass_time(80)
    lab.slurm.requeue(key.job_id)
    lab.job(key).saved_work_s = saved_s
    await lab.pass_time(300)
    job = lab.job(key)
    (first_s, _), (again_s, _) = job.starts
    assert again_s > first_s + 80
    assert job.end_time_s == pytest.approx(again_s + left_s)


async def test_requeuehold_by_hand_starts_ended_jobs_over() -> None:
    lab = Lab()
    key = lab.sbatch(duration_s=1)
    await lab.pass_time(5)
    assert lab.state(key) == "COMPLETED"
    lab.slurm.requeue(key.job_id, held=True)
    assert (lab.phase(key), lab.job(key).held, lab.reason(key)) == (Phase.PENDING, True, "job_requeued_in_held_state")


async def test_a_launch_that_fails_leaves_the_job_held() -> None:
    lab = Lab()
    key = lab.sbatch(launch_fails=True)
    await lab.pass_time(1)
    assert (lab.phase(key), lab.reason(key)) == (Phase.PENDING, "launch_failed_requeued_held")


async def test_a_job_that_never_starts_blocks_no_other() -> None:
    lab = Lab()
    never = lab.sbatch(never_starts=True)
    other = lab.sbatch()
    await lab.pass_time(60)
    assert (lab.phase(never), lab.reason(never)) == (Phase.PENDING, "Resources")
    assert lab.phase(other) is Phase.RUNNING


async def test_a_suspended_job_keeps_its_gpus_and_loses_no_time() -> None:
    lab = Lab()
    key = lab.sbatch(gpus=8, duration_s=100, time_limit_s=150)
    await lab.pass_time(50)
    lab.slurm.suspend(key.job_id)
    await lab.pass_time(1000)
    assert (lab.phase(key), lab.nodes(key)) == (Phase.SUSPENDED, ("n1",))
    lab.slurm.resume(key.job_id)
    await lab.pass_time(49)
    assert lab.phase(key) is Phase.RUNNING
    await lab.pass_time(2)
    assert lab.state(key) == "COMPLETED"


async def test_scontrol_update_has_slurms_traps() -> None:
    lab = Lab()
    key = lab.sbatch(gpus=2, nodes=1, hold=True)
    with pytest.raises(SlurmError, match="Node count"):
        lab.slurm.update(key.job_id, NumNodes="2")
    lab.slurm.update(key.job_id, NumNodes="2-2")
    assert (lab.job(key).request.min_nodes, lab.job(key).request.num_tasks) == (2, 2)
    lab.slurm.update(key.job_id, TresPerNode="gpu:5")
    assert lab.job(key).request.gpus_per_node == 2
    with pytest.raises(SlurmError, match="Invalid node name"):
        lab.slurm.update(key.job_id, TresPerNode="gres:gpu:5", ReqNodeList="n1,nowhere")
    assert lab.job(key).request.gpus_per_node == 5, "a failed update is partly applied"
    tasks = lab.sbatch(request=sbatch_request(gpus_per_task=1, ntasks=2), hold=True)
    with pytest.raises(SlurmError, match="gres"):
        lab.slurm.update(tasks.job_id, TresPerNode="gres:gpu:1")


async def test_cancel_in_every_phase() -> None:
    lab = Lab()
    running, held = lab.sbatch(duration_s=1000), lab.sbatch(hold=True)
    await lab.pass_time(10)
    for key in (running, held):
        lab.slurm.cancel(key.job_id)
    await lab.pass_time(1)
    assert {lab.state(running), lab.state(held)} == {"CANCELLED"}
    with pytest.raises(SlurmError, match="complet"):
        lab.slurm.cancel(running.job_id)


async def test_a_job_that_is_cancelled_in_the_queue_has_its_end_as_the_start() -> None:
    """Measured on 22.05; a requeued job does not have the start of its former run either."""
    lab = Lab()
    held, again = lab.sbatch(hold=True), lab.sbatch(duration_s=1000)
    await lab.pass_time(10)
    lab.slurm.requeue(again.job_id, held=True)
    await lab.pass_time(10)
    for key in (held, again):
        lab.slurm.cancel(key.job_id)
        ended = lab.job(key)
        assert (ended.state, ended.start_time_s) == ("CANCELLED", ended.end_time_s)


async def test_users_cannot_release_what_an_operator_holds() -> None:
    lab = Lab()
    key = lab.sbatch(begin_time_s=lab.start_s + 60)
    lab.slurm.admin_hold(key.job_id)
    with pytest.raises(SlurmError, match="denied"):
        lab.slurm.user_release(key.job_id)
    lab.slurm.admin_release(key.job_id)
    assert not lab.job(key).held


async def test_a_defect_that_ends_the_task_of_the_cluster_is_logged_and_the_next_start_begins_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = EmbeddedSlurm()

    async def broken() -> None:
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(slurm, "run", broken)
        slurm.start()
        await asyncio.wait({task for task in asyncio.all_tasks() if task.get_name() == "embedded-slurm"})
        await asyncio.sleep(0)
    assert "embedded_slurm_failed" in (said := capsys.readouterr().out)
    assert "a defect" in said
    slurm.start()
    (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "embedded-slurm")
    task.cancel()
    await asyncio.wait({task})
    assert capsys.readouterr().out == ""
