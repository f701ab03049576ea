"""`headway report`: what became of a job, and which users may know it."""

from __future__ import annotations

import asyncio
import os
import pwd
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.admin.explain.wait_reason import FOR_GPUS
from controller.admin.protocol import Reason
from controller.admin.refusal import CallRefused
from controller.admin.report.job_notes import JobNotes
from controller.admin.report.reports import Reports
from controller.admin.report.runs import BY_SLURM
from controller.admin.viewer import Viewer
from controller.base.errors import SlurmUnavailableError
from controller.slurm.accounting import AccountedRun
from controller.slurm.model.job import JobKey
from controller.state.job_note_table import JobNote
from controller.state.journal import RunRecord
from controller.state.ledger import Served
from controller.state.preemption import Cause, Preemption, PreemptionMethod, RelocationConstraint, Stage
from protos.headway.v1 import admin_pb2
from tests.unit.controller.examples.reports import Training
from tests.unit.controller.worlds.controller_world import ControllerWorld, world_in
from tests.unit.controller.worlds.measured import measured_world, share_nodes


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="hw-") as path:
        yield Path(path)


class Accounts:
    """Slurm's accounting."""

    def __init__(self, *runs: AccountedRun, away: bool = False) -> None:
        self._runs, self._away = list(runs), away

    async def runs(self, job_id: str) -> list[AccountedRun]:
        if self._away:
            raise SlurmUnavailableError("sacct: no answer")
        return self._runs


def reports_of(world: ControllerWorld, accounting: Accounts | None = None) -> Reports:
    notes = JobNotes(world.journal.job_notes, world.preemptions.steps_done)
    world.listeners.append(notes.note)
    return Reports(Viewer(world, world.measurement), notes, accounting)  # type: ignore[arg-type]


def stopped(raw_id: int, submit_s: int) -> Preemption:
    """A preemption of a run with that submit time."""
    return Preemption(
        number=0, job_id=str(raw_id), raw_id=raw_id, submit_time_s=submit_s, restarts=0, cause=Cause.OPERATOR, why="by hand",
        way=PreemptionMethod.CHECKPOINT, force=False, nodes=("n1",), constraint=RelocationConstraint(), within_s=60.0,
        stage=Stage.OVER, asked_s=submit_s + 10.0, stopped_s=submit_s + 20.0, ended_s=submit_s + 30.0,
    )  # fmt: skip


async def refusal(work: object) -> CallRefused:
    with pytest.raises(CallRefused) as caught:
        await work  # type: ignore[misc]
    return caught.value


async def test_a_job_that_has_waited_run_and_ended(folder: Path) -> None:
    # given a job that waits for a minute, and runs for another
    world = world_in(folder)
    world.endpoint.away = True
    reports = reports_of(world)
    world.sbatch(60.0, gpus_per_node=8, nodes=4)
    await world.go_on(3)
    key = world.sbatch(100.0, gpus_per_node=8, user="ann", name="bert")
    await world.go_on(30)
    waits = await reports.report(key.job_id, "", private=False)
    await world.go_on(60)
    runs = await reports.report(key.job_id, "", private=False)
    await world.go_on(100)
    await world.clock.advance(2000.0)
    await world.turn()
    ended = await reports.report(key.job_id, "", private=False)
    # then each report has what is known by then
    assert (waits.user, waits.name, waits.state, list(waits.runs)) == ("ann", "bert", "waiting", [])
    assert waits.wait_s == pytest.approx(30.0, abs=3.0)
    assert (waits.waits[0].why, not waits.HasField("end_time_s")) == (FOR_GPUS, True)
    (run,) = runs.runs
    assert (runs.state, run.placement, run.policy, run.HasField("end_s")) == ("running", "n1:8", "fallback:fifo", False)
    assert run.reason
    (run,) = ended.runs
    assert (ended.state, ended.slurm_state, run.slurm_state, run.placement) == (
        "ended",
        "COMPLETED",
        "COMPLETED",
        "n1:8",
    )
    assert run.end_s - run.start_s == pytest.approx(100.0, abs=2.0)
    assert ended.service_s == pytest.approx(100.0, abs=2.0)
    assert ended.gpu_hours == pytest.approx(100.0 * 8 / 3600, rel=0.05)
    assert ended.wait_s == pytest.approx(58.0, abs=5.0)
    assert ended.waits[0].wait_s == pytest.approx(ended.wait_s, abs=6.0)
    assert ended.missing == ["its speed is not known: no node agents report to this controller"]
    assert not ended.hint


@pytest.mark.parametrize(
    ("time_limit_s", "hint"),
    [
        (36_000.0, "its time limit was 10 h and it ran for 10 s: with a shorter --time, jobs can start"),
        (365 * 86_400.0, "it had no time limit and it ran for 10 s: with a --time, jobs can start"),
    ],
)
async def test_a_job_that_ended_long_before_its_time_limit_has_a_hint(
    folder: Path, time_limit_s: float, hint: str
) -> None:
    world = world_in(folder)
    key = world.sbatch(10.0, gpus_per_node=8, time_limit_s=time_limit_s)
    await world.go_on(20, 1)

    assert (await reports_of(world).report(key.job_id, "", private=False)).hint.startswith(hint)


async def test_a_job_that_has_not_run_has_no_note_about_its_speed(folder: Path) -> None:
    world = world_in(folder)
    key = world.sbatch(60.0, gpus_per_node=8, hold=True)
    await world.turn()

    missing = (await reports_of(world).report(key.job_id, "", private=False)).missing
    assert not [sentence for sentence in missing if "speed" in sentence]


async def test_a_run_that_slurm_placed_has_the_reason_for_it(folder: Path) -> None:
    world = world_in(folder)
    reports = reports_of(world)
    key = world.sbatch(60.0, gpus_per_node=8, free_choice_only=True)
    await world.go_on(10)
    running = await reports.report(key.job_id, "", private=False)
    await world.go_on(70)
    await world.clock.advance(1000.0)
    await world.turn()
    ended = await reports.report(key.job_id, "", private=False)

    for found in (running, ended):
        (run,) = found.runs
        assert run.policy == BY_SLURM
        assert "BadConstraints" in run.reason


async def test_a_run_after_a_requeue_does_not_have_the_reason_of_the_run_before(folder: Path) -> None:
    # given a job that only Slurm could place, which runs again after its node failed, and then is Headway's to place
    world = world_in(folder)
    key = world.sbatch(1e6, gpus_per_node=8, free_choice_only=True)
    await world.go_on(10)
    now_s = world.clock.now()
    accounts = Accounts(
        AccountedRun(1, float(key.submit_time_s), now_s - 1, now_s + 50, 51.0, "NODE_FAIL", 8, "n1", "alice", "train"),
        AccountedRun(1, now_s + 50, now_s + 60, None, 2.0, "RUNNING", 8, "n2", "alice", "train"),
    )
    world.slurm_says(AccountingStorageType="accounting_storage/slurmdbd")
    found = await reports_of(world, accounts).report(key.job_id, "", private=False)

    assert [run.policy for run in found.runs] == [BY_SLURM, ""]


async def test_speed_contention_and_steps_come_from_the_agents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, second = await share_nodes(world, fleet)
        reports = reports_of(world)
        found = await reports.report(first.job_id, "", private=False)
        assert found.steps_per_s == pytest.approx(4.5)  # a window alone at 6 steps/s, and one at 3
        assert found.contention_loss == pytest.approx(0.25)
        (other,) = found.beside
        assert (other.job_id, other.windows) == (second.job_id, 1)
        assert other.loss == pytest.approx(0.5)
        assert found.hint.startswith("it lost 25% of its speed to jobs beside it")
        # the second one never ran alone: its speed alone is that of the first, which is of the same kind
        theirs = await reports.report(second.job_id, "", private=False)
        assert theirs.steps_per_s == pytest.approx(3.0)
        assert theirs.contention_loss == pytest.approx(0.5)
        # and to its own user, where jobs are private, the jobs of others have no id
        theirs = await reports.report(second.job_id, "bob", private=True)
        assert [other.job_id for other in theirs.beside] == [""]


async def test_steps_that_were_lost_are_not_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a job whose first run made 1,200 steps and lost 300 of them, and whose second one was at 1,000 when it was noted
    world = world_in(folder)
    reports = reports_of(world)
    key = world.sbatch(1e6, gpus_per_node=8)
    await world.go_on(3)
    now_s, earlier = world.clock.now(), key._replace(submit_time_s=key.submit_time_s - 50)
    world.journal.job_notes.save([JobNote(key, now_s, {}, 1000), JobNote(earlier, now_s, {}, 1200)])
    # when its agents do not report, the newest note counts
    assert (await reports.report(key.job_id, "", private=False)).steps == 1000
    # and when they do, what they say: its program has begun again at a checkpoint meanwhile
    monkeypatch.setattr(world.preemptions, "steps_done", lambda job: 950)
    assert (await reports.report(key.job_id, "", private=False)).steps == 950


async def test_the_energy_is_that_of_all_nodes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        key = world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2)
        await world.go_on(3)
        reports = reports_of(world)
        assert not (await reports.report(key.job_id, "", private=False)).HasField("energy_kwh")
        now_s = time.time()
        training = Training(int(key.job_id), ("n1", "n2"), 3.0, start_s=now_s - 1000, end_s=1e12)

        async def used(node: str, *joules: float) -> None:
            for total in joules:
                report = training.report(node, now_s)
                report.job.energy_joules = total
                fleet.agents[node].outbox.put(report, keep=True)
            await fleet.said()

        await used("n1", 0.0, 1.8e6, 3.6e6)
        await used("n2", 1.8e6)
        found = await reports.report(key.job_id, "", private=False)
        assert found.energy_kwh == pytest.approx(1.5)


async def test_runs_and_gpu_hours_are_those_of_slurms_accounting(folder: Path) -> None:
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(1e6, gpus_per_node=8)
    await world.go_on(3)
    now_s = world.clock.now()
    submit_s = key.submit_time_s - 100
    world.ledger.served[key] = Served(40.0, 320.0, submit_s)
    accounts = Accounts(
        AccountedRun(1, submit_s, submit_s + 10, submit_s + 50, 40.0, "NODE_FAIL", 8, "n3", "alice", "train"),
        AccountedRun(1, float(key.submit_time_s), now_s - 2, None, 2.0, "RUNNING", 4, "n1", "alice", "train"),
    )
    world.slurm_says(AccountingStorageType="accounting_storage/slurmdbd")
    found = await reports_of(world, accounts).report(key.job_id, "", private=False)
    assert [(run.placement, run.slurm_state) for run in found.runs] == [("n3", "NODE_FAIL"), ("n1:8", "RUNNING")]
    assert (found.service_s, found.submit_time_s) == (42.0, submit_s)
    assert found.gpu_hours == pytest.approx((40 * 8 + 2 * 4) / 3600)
    # and when it does not answer, the rest is there
    found = await reports_of(world, Accounts(away=True)).report(key.job_id, "", private=False)
    assert "Slurm's accounting could not be read: sacct: no answer" in found.missing
    assert len(found.runs) == 1


def earlier_run(now_s: float, user: str, state: str = "COMPLETED") -> AccountedRun:
    """A run of a job that had the id 400 days ago."""
    then_s = now_s - 400 * 86_400
    return AccountedRun(1, then_s, then_s + 60, then_s + 3660, 3600.0, state, 64, "old[1-8]", user, "train")


@pytest.mark.parametrize("restarts", [0, 1])
async def test_runs_of_other_jobs_that_had_the_id_are_not_reported(folder: Path, restarts: int) -> None:
    # given a running job, with the id of earlier jobs of its user and of another
    world = world_in(folder)
    world.endpoint.away = True
    key = world.sbatch(1e6, gpus_per_node=8, user="ann")
    await world.go_on(3)
    if restarts:
        world.slurm.requeue(key.job_id)
        await world.go_on(60)
    now_s, (job,) = world.clock.now(), world.last.observation.snapshot.jobs
    present = AccountedRun(1, job.key.submit_time_s, job.start_time_s, None, 9.0, "RUNNING", 8, "n1", "ann", "train")
    accounts = Accounts(
        earlier_run(now_s, "ann", "NODE_FAIL"),
        earlier_run(now_s, "ann"),
        earlier_run(now_s - 1, "bob", "NODE_FAIL"),
        present,
    )
    world.slurm_says(AccountingStorageType="accounting_storage/slurmdbd")
    # and a preemption of the other user's job
    world.journal.preemptions.add(stopped(1, int(now_s) - 20 * 86_400))
    # when its report is asked for
    found = await reports_of(world, accounts).report(key.job_id, "ann", private=True)
    # then it has its own run alone
    assert [(run.placement, run.slurm_state) for run in found.runs] == [("n1:8", "RUNNING")]
    assert (found.submit_time_s, found.service_s, len(found.stops)) == (key.submit_time_s, 9.0, 0)
    assert found.gpu_hours == pytest.approx(9.0 * 8 / 3600)


async def test_a_forgotten_job_has_none_of_the_stops_of_an_earlier_job_of_its_id(folder: Path) -> None:
    world = world_in(folder)
    await world.turn()
    now = int(world.clock.now())
    world.journal.record_runs(
        [
            RunRecord(
                JobKey("7", now - 80_000), "bob", "train", now - 80_000.0, now - 70_000.0, 9000.0, 8, 1, "COMPLETED"
            ),
            RunRecord(JobKey("7", now - 9000), "ann", "train", now - 8000.0, now - 7000.0, 2000.0, 8, 1, "COMPLETED"),
        ]
    )
    for submit_s in (now - 79_000, now - 12_000):
        world.journal.preemptions.add(stopped(7, submit_s))
    found = await reports_of(world).report("7", "ann", private=True)
    assert (found.submit_time_s, [stop.time_s for stop in found.stops]) == (now - 12_000, [now - 11_990])


async def test_the_speed_of_an_earlier_job_of_its_id_is_not_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with measured_world(folder, monkeypatch) as (world, fleet):
        first, _ = await share_nodes(world, fleet)
        reports = reports_of(world)
        assert (await reports.report(first.job_id, "", private=False)).HasField("steps_per_s")
        world.ledger.served[first] = Served(0.0, 0.0, int(time.time()) + 3600)
        found = await reports.report(first.job_id, "", private=False)
        assert not found.HasField("steps_per_s")


async def test_jobs_that_are_not_known_and_arrays_get_a_clear_message(folder: Path) -> None:
    world = world_in(folder)
    reports = reports_of(world)
    assert (await refusal(reports.report("7", "", private=False))).reason is Reason.NOT_READY
    await world.turn()
    unknown = await refusal(reports.report("99", "", private=False))
    assert unknown.reason is Reason.UNKNOWN_JOB
    assert "Headway has not scheduled it, or it ended more than 30 days ago" in str(unknown)
    assert "`sacct -j 99`" in str(unknown)
    assert (await refusal(reports.report("x", "", private=False))).reason is Reason.INVALID_JOB_ID


async def test_where_jobs_are_private_users_get_the_reports_of_their_own(folder: Path) -> None:
    world = world_in(folder)
    world.endpoint.away = True
    anns, bobs = world.sbatch(gpus_per_node=4, user="ann"), world.sbatch(gpus_per_node=4, user="bob")
    await world.go_on(3)
    reports = reports_of(world)
    assert (await reports.report(anns.job_id, "ann", private=True)).user == "ann"
    for job_id, user in ((bobs.job_id, "ann"), (anns.job_id, ""), ("99", "ann")):
        refused = await refusal(reports.report(job_id, user, private=True))
        assert refused.reason is Reason.JOBS_PRIVATE
        assert "you get the reports of your own jobs" in str(refused)


async def test_over_the_socket_the_kernel_names_the_user(folder: Path) -> None:
    import grpc.aio

    from controller.admin.serve import serve_admin
    from protos.headway.v1 import admin_pb2_grpc

    world = world_in(folder)
    world.endpoint.away = True
    me = pwd.getpwuid(os.getuid()).pw_name
    mine, other = world.sbatch(gpus_per_node=4, user=me), world.sbatch(gpus_per_node=4, user="somebody")
    await world.go_on(3)
    world.slurm_says(PrivateData="jobs")
    async with (
        serve_admin(world, folder, ""),
        grpc.aio.insecure_channel(f"unix:{folder / 'status.sock'}") as channel,
    ):
        stub = admin_pb2_grpc.AdminStub(channel)
        async with asyncio.timeout(60.0):
            assert (await stub.GetReport(admin_pb2.GetReportRequest(job_id=mine.job_id))).user == me
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.GetReport(admin_pb2.GetReportRequest(job_id=other.job_id))
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
