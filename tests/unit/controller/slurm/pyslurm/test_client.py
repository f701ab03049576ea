"""The pyslurm client over a fake of pyslurm 25.11, and the child process in which the real one would run."""

from __future__ import annotations

import asyncio
import copy
import errno
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from enum import Flag, auto
from pathlib import Path
from typing import Any

import pytest

from controller.base.errors import SlurmReplyError, SlurmUnavailableError
from controller.slurm.client import FailureReason, Pin, SlurmClient
from controller.slurm.model.cluster import SlurmReservation
from controller.slurm.model.job import JobKey, NodeShare, Phase, ResourceRequest, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.pyslurm.calls import Order, PySlurmCalls, job_record
from controller.slurm.pyslurm.client import PySlurmClient
from controller.slurm.pyslurm.errors import is_away, is_unknown_job
from controller.slurm.pyslurm.process import WorkerProcess
from controller.slurm.scontrol.client import CommandLineClient
from tests.unit.controller.slurm.pyslurm.bridge import RUNNING, Bridge
from tests.unit.controller.slurm.pyslurm.fake_pyslurm import FakePySlurm, JobRow, RPCError, tres
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S

KEY = JobKey("7", SUBMIT_S)
NOW_S = SUBMIT_S + 100.0


class Direct:
    """A Worker in this process. What it answers is a copy, as if it had come through a pipe."""

    def __init__(self, module: FakePySlurm) -> None:
        self._calls = PySlurmCalls(module)
        self.closed = False
        self.lost: BaseException | None = None
        """If set, the next answer does not arrive, and the call ends with this."""

    def close(self) -> None:
        self.closed = True

    async def call(self, method: str, *arguments: object) -> Any:
        try:
            answer = copy.deepcopy(getattr(self._calls, method)(*arguments))
        except RPCError as error:
            raise SlurmReplyError(str(error)) from error
        lost, self.lost = self.lost, None
        if lost is not None:
            raise lost
        return answer


class World:
    """One slurmctld, and the client on it."""

    def __init__(self, *rows: JobRow) -> None:
        self.module = FakePySlurm(*rows)
        self.bridge = Bridge(self.module)
        self.worker = Direct(self.module)
        self.client = PySlurmClient(self.worker, CommandLineClient(self.bridge, CLOCK), now=lambda: NOW_S)

    async def job(self, job_id: str = "7") -> SlurmJob:
        return next(job for job in (await self.client.snapshot()).jobs if job.key.job_id == job_id)


def job_with(**attributes: Any) -> SlurmJob:
    (job,) = job_record(JobRow(**attributes)).jobs
    return job


# ---- reading


def test_a_held_job() -> None:
    assert job_with(time_limit=90).latest_start_s is None
    assert job_with(time_limit=90, deadline=10_000).latest_start_s == 4600.0
    assert job_with(time_limit=90, time_limit_min=30, deadline=10_000).latest_start_s == 8200.0
    job = job_with(time_limit=90, constraints=["fast", "big"], licenses=["matlab:1"], account="ml")
    assert (job.key, job.phase, job.held, job.user, job.name) == (KEY, Phase.PENDING, True, "ann", "train")
    assert (job.time_limit_s, job.features, job.licenses, job.account) == (5400.0, "fast,big", "matlab:1", "ml")
    assert (job.admin_comment, job.comment, job.reservation, job.dependency) == ("", "", "", "")
    assert job.request == ResourceRequest(1, 0, 1, 1, gpus_per_node=2, memory_mib_per_cpu=1000)


def test_texts_that_are_no_utf_8() -> None:
    # pyslurm decodes a text when it is asked for it
    class LatinRow(JobRow):
        def __getattribute__(self, name: str) -> Any:
            if name in {"name", "admin_comment", "comment", "account"}:
                return b"caf\xe9".decode()
            return super().__getattribute__(name)

    record = job_record(LatinRow())
    (job,) = record.jobs
    assert (job.name, job.comment, job.account) == (r"caf\xe9",) * 3
    assert not record.comment_is_exact, "Headway leaves this admin comment as it is"


def test_a_job_asks_for_few_switches():
    assert job_with().by_topology == ""
    assert job_with(required_switches=2).by_topology == "--switches=2"


def test_a_running_job() -> None:
    job = job_with(**RUNNING)
    assert job.allocated == (NodeShare("n1", 2, 0b101, 4, 4000), NodeShare("n2", 2, 0b101, 4, 4000))
    assert (job.held, job.start_time_s) == (False, SUBMIT_S + 1)


def test_a_completing_job_shares_what_it_held() -> None:
    job = job_with(**RUNNING | {"state": "COMPLETING", "allocated_tres": tres(gpu=4), "cpus": 8})
    assert job.allocated == (NodeShare("n1", 2, 0, 4, 0), NodeShare("n2", 2, 0, 4, 0))


@pytest.mark.parametrize(
    ("attributes", "asked"),
    [
        ({"gres_per_node": {"gres/gpu:a100": 4}}, (None, 4, None, "a100")),
        ({"gres_per_node": {"gpu": 4}}, (None, 4, None, "")),
        ({"gres_per_node": {}, "tres_per_job": tres(gpu=8)}, (8, None, None, "")),
        ({"gres_per_node": {}, "requested_tres": tres(gpu=8)}, (8, None, None, "")),
        ({"gres_per_node": {}, "requested_tres": tres(gpu=8, gpu_a100=8)}, (8, None, None, "a100")),
        ({"gres_per_node": {}, "tres_per_task": tres(gpu=2), "requested_tres": tres(gpu=8)}, (None, None, 2, "")),
        ({"gres_per_node": {}}, (None, None, None, "")),
    ],
)
def test_requested_gpus(attributes: dict[str, Any], asked: tuple[object, ...]) -> None:
    request = job_with(**attributes).request
    assert (request.gpus_per_job, request.gpus_per_node, request.gpus_per_task, request.gpu_type) == asked


@pytest.mark.parametrize(
    ("attributes", "ids"),
    [
        ({"array_id": 7, "array_tasks_waiting": "0,2-3"}, ["7_0", "7_2", "7_3"]),
        ({"array_id": 5, "array_task_id": 4}, ["5_4"]),
        ({"array_id": 5, "array_task_id": None}, ["5_0"]),
        ({"array_id": 7, "array_task_id": None, "state": "CANCELLED"}, ["7"]),
    ],
)
def test_arrays(attributes: dict[str, Any], ids: list[str]) -> None:
    jobs = job_record(JobRow(**attributes)).jobs
    assert [job.key.job_id for job in jobs] == ids
    assert {job.raw_id for job in jobs} == {JobRow(**attributes).id}


def test_dependencies_as_sbatch_takes_them() -> None:
    nothing: dict[str, Any] = {"after": [], "afterok": [], "afterany": [], "singleton": False, "satisfy": "all"}
    assert job_with(dependencies=None).dependency == ""
    assert (
        job_with(dependencies=nothing | {"afterok": [12, 13], "singleton": True}).dependency
        == "afterok:12,afterok:13,singleton"
    )
    # Slurm's texts of waiting jobs: pyslurm keeps what is behind an id, and leaves out a singleton
    two = nothing | {"afterany": ["1(unfulfilled)", "2(unfulfilled)"]}
    assert job_with(dependencies=two).dependency == "afterany:1(unfulfilled),afterany:2(unfulfilled)"
    assert job_with(dependencies=nothing).dependency == "singleton"
    assert (
        job_with(dependencies=nothing | {"after": [1], "afterok": [2], "satisfy": "any"}).dependency
        == "after:1?afterok:2"
    )


@pytest.mark.parametrize(
    ("state", "started", "available"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", None, True),
        ("MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", None, True),
        ("IDLE+POWERED_DOWN", 1_700_000_000, True),
        ("IDLE+POWERED_DOWN", None, False),
        ("IDLE+CLOUD", None, False),
        ("IDLE+CLOUD+POWERING_DOWN", 1_700_000_000, False),
    ],
)
async def test_nodes_that_power_saving_has_off(state: str, started: int | None, available: bool) -> None:
    world = World(JobRow(id=7))
    world.module.nodes[0].state, world.module.nodes[0].slurmd_start_time = state, started
    assert (await world.client.snapshot()).nodes[0].available is available


class ReservationFlags(Flag):
    """Some of pyslurm's flags."""

    MAGNETIC = auto()
    FLEX = auto()


async def test_jobs_that_a_magnetic_reservation_draws() -> None:
    world = World()
    (row,) = world.module.Reservations.load().values()
    row.flags, row.users, row.accounts = ReservationFlags.MAGNETIC | ReservationFlags.FLEX, ["ann"], []
    world.module.Reservations.load = lambda: {"r": row}
    (found,) = (await world.client.snapshot()).reservations
    assert (found.magnetic, found.users, found.accounts) == (True, frozenset({"ann"}), frozenset())
    row.flags = ReservationFlags.FLEX
    (found,) = (await world.client.snapshot()).reservations
    assert not found.magnetic


async def test_a_snapshot_keeps_what_has_not_changed() -> None:
    world = World(JobRow(id=7), JobRow(id=8))
    first = await world.client.snapshot()
    assert [node.available for node in first.nodes] == [True, False]
    assert (first.nodes[0].gpus, first.nodes[0].gpu_type, first.nodes[0].memory_mib) == (8, "a100", 250_000)
    assert first.partitions[0].max_time_s is None
    assert first.reservations == (SlurmReservation("r", frozenset({"n2"}), 10.0, 20.0),)
    world.module.rows[8].state_reason = "Dependency"
    del world.module.rows[7]
    world.module.rows[9] = JobRow(id=9)
    second = await world.client.snapshot()
    assert [(job.key.job_id, job.reason) for job in second.jobs] == [("8", "Dependency"), ("9", "JobHeldUser")]
    third = await world.client.snapshot()
    assert all(after is before for after, before in zip(third.jobs, second.jobs, strict=True))
    assert third.nodes is second.nodes


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), SlurmUnavailableError("no answer in time"), MemoryError()], ids=repr
)
async def test_a_reading_is_whole_after_one_whose_answer_did_not_arrive(error: BaseException) -> None:
    # given a reading, and a second one whose answer is lost although it has changes
    world = World(JobRow(id=7))
    first = await world.client.snapshot()
    world.module.rows[7].state_reason = "Dependency"
    world.module.rows[8] = JobRow(id=8)
    world.module.nodes[0].state = "DOWN"
    world.worker.lost = error
    with pytest.raises(type(error)):
        await world.client.snapshot()

    # when it is read again, and again
    second, third = await world.client.snapshot(), await world.client.snapshot()

    # then the changes are there, and only what has changed is new
    assert [(job.key.job_id, job.reason) for job in second.jobs] == [("7", "Dependency"), ("8", "JobHeldUser")]
    assert (second.nodes[0].state, second.partitions) == ("DOWN", first.partitions)
    assert all(after is before for after, before in zip(third.jobs, second.jobs, strict=True))


async def test_facts_are_complete() -> None:
    """PrivateData above all: without it users would see one another's jobs."""
    world = World()
    world.bridge.config += "PrivateData             = jobs\nSlurmUser               = slurm(64030)\n"
    facts = await world.client.facts()
    assert (facts.version, facts.cluster_name, facts.client) == ((22, 5, 8), "lab", "pyslurm")
    assert (facts.settings["PrivateData"], facts.settings["SlurmUser"]) == ("jobs", "slurm(64030)")


async def test_closing_ends_the_worker() -> None:
    world = World()
    await world.client.close()
    assert world.worker.closed


@pytest.mark.parametrize(
    ("attributes", "fixed"),
    [
        ({}, False),
        ({"gres_per_node": {"gres/gpu:a": 1, "gres/gpu:b": 1}}, True),
        ({"gres_per_node": {"gres/gpu": 1, "gres/nvme": 1}}, True),
        ({"gres_per_node": {"gres/gpu": 1}, "tres_per_task": tres(gpu=1)}, True),
    ],
)
def test_gpus_that_cannot_be_given_another_number(attributes: dict[str, Any], fixed: bool) -> None:
    assert job_with(**attributes).request.gpus_fixed is fixed


def test_gpus_by_socket_are_left_to_slurm() -> None:
    assert not job_with(gres_per_node={}, requested_tres=tres(gpu=2), sockets_per_node=1).request.has_gpus


def test_memory_by_gpu_is_none_of_nodes_or_cpus() -> None:
    request = job_with(mem_per_tres="gres/gpu:1024", memory_per_node=8000).request
    assert (request.memory_mib_per_node, request.memory_mib_per_cpu) == (None, None)


def test_a_run_without_a_limit_has_no_end() -> None:
    year_s = 365 * 86400
    assert job_with(**RUNNING | {"end_time": int(time.time()) + year_s}).end_time_s is None
    assert job_with(**RUNNING | {"end_time": int(time.time()) + 60, "time_limit": 10}).end_time_s is not None
    assert job_with(state="COMPLETED", end_time=SUBMIT_S + 5).end_time_s == SUBMIT_S + 5


async def test_read_leaves_out_what_is_gone() -> None:
    world = World(JobRow(id=7))
    assert isinstance(world.client, SlurmClient)
    assert set(await world.client.read([KEY, JobKey("7", 1), JobKey("99", 1)])) == {KEY}


# ---- changing


async def test_hold_mark_release_and_begin_times_go_through_pyslurm() -> None:
    world = World(JobRow(priority=5, admin_comment="billing=7"))
    client = world.client
    assert await client.hold([KEY]) == {}
    job = await world.job()
    assert (job.held, job.admin_comment) == (True, f"billing=7 {HOLD_MARK}")
    assert job.reason == "JobHeldUser"
    assert world.bridge.calls.pop()[0] == "uhold 7", "pyslurm has no call for it"
    assert await client.release([KEY]) == {}
    assert await client.set_begin_time([KEY], NOW_S + 60) == {}
    job = await world.job()
    assert (job.held, job.eligible_time_s) == (False, int(NOW_S + 60))
    assert world.bridge.calls == []


async def test_what_cannot_be_cleared_goes_by_command_line() -> None:
    world = World(JobRow(admin_comment=HOLD_MARK))
    assert await world.client.unmark([KEY], HOLD_MARK) == {}
    assert (await world.job()).admin_comment == ""
    assert world.bridge.commands("update") == ["update JobId=7 AdminComment="]


async def test_a_pin_of_nodes_goes_by_command_line_which_spares_jobs_that_run() -> None:
    world = World(JobRow(id=7, admin_comment=HOLD_MARK))
    assert await world.client.pin([Pin(KEY, ("n2",), 2, (await world.job()).request)]) == {}
    assert (await world.job()).request.required_nodes == ("n2",)
    assert world.bridge.commands("update") == ["update JobId=7 ResetAccrueTime ReqNodeList=n2"]


async def test_a_pin_of_a_number_of_nodes_goes_by_command_line() -> None:
    world = World(JobRow(admin_comment=HOLD_MARK, gres_per_node={}, requested_tres=tres(gpu=4)))
    assert await world.client.pin([Pin(KEY, ("n1", "n2"), 2, (await world.job()).request)]) == {}
    request = (await world.job()).request
    assert (request.required_nodes, request.gpus_per_node, request.max_nodes) == (("n1", "n2"), 2, 2)


async def test_a_task_that_is_not_split_off_goes_by_command_line() -> None:
    world = World(JobRow(array_id=7, array_tasks_waiting="0-1", priority=5))
    await world.client.snapshot()
    assert await world.client.hold([JobKey("7_0", SUBMIT_S)]) == {}
    assert world.bridge.commands("update") == [f"update JobId=7_0 Priority=0 AdminComment={HOLD_MARK}"]


async def test_a_job_that_its_user_holds_is_left_alone() -> None:
    world = World(JobRow(id=7))
    client, request = world.client, (await world.job()).request
    answers = [await client.hold([KEY]), await client.pin([Pin(KEY, ("n2",), 2, request)]), await client.release([KEY])]
    assert [failures[KEY].reason for failures in answers] == [FailureReason.NOT_OURS] * 3
    job = await world.job()
    assert (job.held, job.admin_comment, job.request) == (True, "", request)


async def test_refusals_have_a_reason() -> None:
    world = World(JobRow(id=7, admin_comment=HOLD_MARK))
    world.module.refusal = "Access/permission denied"
    assert (await world.client.release([KEY]))[KEY].message == "Access/permission denied"
    assert (await world.client.release([JobKey("9", 1)]))[JobKey("9", 1)].gone


async def test_requeue_holds_and_signals_go_by_command_line() -> None:
    world = World(JobRow(**RUNNING))
    assert await world.client.signal([KEY], "USR1") == {}
    assert world.bridge.signals == ["--full --signal=USR1 7"]
    assert await world.client.requeue_hold([KEY]) == {}
    job = await world.job()
    assert (job.phase, job.held, job.marks) == (Phase.COMPLETING, True, {HOLD_MARK})


async def test_several_jobs_are_stopped_in_one_call() -> None:
    world = World(JobRow(**RUNNING), JobRow(**{**RUNNING, "id": 8}))
    assert await world.client.requeue_hold([KEY, JobKey("8", SUBMIT_S)]) == {}
    assert [(await world.job(job_id)).phase for job_id in ("7", "8")] == [Phase.COMPLETING] * 2


async def test_no_requeue_is_kept() -> None:
    world = World(JobRow(**RUNNING, is_requeueable=False))
    assert "--no-requeue" in (await world.client.requeue_hold([KEY]))[KEY].message
    assert world.module.calls == []


# ---- the child process


def module_at(folder: Path, body: str) -> Path:
    """A package `pyslurm` that the child imports."""
    package = folder / "pyslurm"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import time, sys\n"
        "from types import SimpleNamespace\n"
        "class RPCError(Exception):\n"
        "    def __init__(self, message, errno=-1):\n"
        "        super().__init__(message)\n"
        "        self.errno = errno\n"
        "def load():\n"
        f"    {body}\n"
        "    return {}\n"
        "Jobs = Nodes = Partitions = Reservations = SimpleNamespace(load=load)\n"
    )
    return folder


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    monkeypatch.syspath_prepend(module_at(tmp_path, request.param))
    process = WorkerProcess({"PATH": "/usr/bin:/bin"}, timeout_s=60.0)
    yield process
    process.close()


@pytest.mark.parametrize("worker", ["print('noise on standard output', flush=True)"], indirect=True)
async def test_calls_run_in_a_child_process(worker: WorkerProcess) -> None:
    assert (await worker.call("changes")).raw_ids == ()
    assert (await worker.call("changes")).raw_ids == ()


@pytest.mark.parametrize("worker", ["raise RPCError('Access/permission denied')"], indirect=True)
async def test_a_refusal_of_slurmctld_is_reported(worker: WorkerProcess) -> None:
    with pytest.raises(SlurmReplyError, match="pyslurm changes: Access/permission denied"):
        await worker.call("changes")


@pytest.mark.parametrize(
    "worker",
    [
        "raise RPCError('Unable to contact slurm controller (connect failure)')",
        "raise RPCError('a text of another release', 1800)",
        "raise RPCError('another one', 5004)",
        "raise OSError(107, 'Connection refused by a proxy')",
    ],
    indirect=True,
)
async def test_a_slurmctld_that_is_away_is_reported(worker: WorkerProcess) -> None:
    with pytest.raises(SlurmUnavailableError, match="scontrol ping"):
        await worker.call("changes")


@pytest.mark.parametrize(
    "worker",
    [
        "raise RPCError('socket timed out, which cannot be said of this one', 2002)",
        "raise OSError(110, 'no number of Slurm, which cannot be said of others')",
    ],
    indirect=True,
)
async def test_a_refusal_whose_text_looks_like_a_slurmctld_that_is_away(worker: WorkerProcess) -> None:
    with pytest.raises(SlurmReplyError, match="which cannot be said"):
        await worker.call("changes")


@pytest.mark.parametrize(
    ("error", "unknown"),
    [
        (RPCError("Invalid job id specified", 2017), True),
        (RPCError("some other text", 2017), True),
        (RPCError("Invalid job id specified"), True),
        (RPCError("Invalid job id specified for that dependency", 2040), False),
        (RPCError("Socket timed out", 5004), False),
    ],
)
def test_an_unknown_job_is_known_by_slurms_number(error: RPCError, unknown: bool) -> None:
    assert is_unknown_job(error) is unknown


@pytest.mark.parametrize(
    "number",
    [6001, 6002, 6003, errno.ENETUNREACH, errno.EPIPE, errno.ECONNABORTED, errno.EHOSTDOWN],
)
def test_slurmctld_is_away_when_munge_or_the_network_is(number: int) -> None:
    assert is_away(number, "a text of some release")


async def test_a_child_that_cannot_be_started_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    worker = WorkerProcess({}, timeout_s=60.0)
    opened = []
    for _ in range(5):
        with pytest.raises(SlurmUnavailableError, match="could not be started"):
            await worker.call("changes")
        opened.append(len(list(Path("/proc/self/fd").iterdir())))
    assert opened[-1] == opened[0]
    worker.close()


@pytest.mark.parametrize(("asked", "parts"), [((), 2), (("with-numbers",), 3)])
def test_a_controller_of_an_earlier_version_gets_answers_of_two_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], parts: int
) -> None:
    monkeypatch.syspath_prepend(module_at(tmp_path, "raise RPCError('no', 2017)"))
    request = pickle.dumps(("changes", ()))
    with tempfile.TemporaryFile(dir=tmp_path) as answers:
        subprocess.run(
            [sys.executable, "-m", "controller.slurm.pyslurm.process", str(answers.fileno()), *asked],
            input=struct.pack("!Q", len(request)) + request,
            pass_fds=(answers.fileno(),),
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
            cwd="/",
            check=True,
            timeout=60,
        )
        answers.seek(8)
        assert pickle.loads(answers.read()) == ("failed", "no", 2017)[:parts]


@pytest.mark.parametrize("worker", ["sys.exit(3)"], indirect=True)
async def test_a_child_that_dies_is_replaced(worker: WorkerProcess) -> None:
    for _ in range(2):
        with pytest.raises((SlurmUnavailableError, SlurmReplyError)):
            await worker.call("changes")


async def test_a_call_that_hangs_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(module_at(tmp_path, "time.sleep(600)"))
    worker = WorkerProcess({"PATH": "/usr/bin:/bin"}, timeout_s=1.0)
    begun = time.monotonic()
    with pytest.raises(SlurmUnavailableError, match="no answer from its process within 1 s"):
        await worker.call("changes")
    assert time.monotonic() - begun < 20
    worker.close()


@pytest.mark.parametrize("worker", ["time.sleep(0.3)"], indirect=True)
async def test_the_answer_to_a_cancelled_call_is_not_taken_for_the_next(worker: WorkerProcess) -> None:
    await worker.call("changes")
    cancelled = asyncio.create_task(worker.call("changes"))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    with pytest.raises(SlurmReplyError, match="no_such_method"):
        await worker.call("no_such_method")


_SLOW_RELEASES = """
import os, pathlib, time
class RPCError(Exception):
    pass
class Job:
    def __init__(self, job_id):
        self.job_id = job_id
    def release(self):
        with open({folder!r} + "/released", "a") as file:
            file.write(f"{{os.getpid()}} {{self.job_id}}\\n")
        while not os.path.exists({folder!r} + "/go"):
            time.sleep(0.02)
"""


@pytest.fixture
def slow_releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """A worker whose releases wait for a file. `released` has the process and the job of each."""
    (tmp_path / "pyslurm").mkdir()
    (tmp_path / "pyslurm" / "__init__.py").write_text(_SLOW_RELEASES.format(folder=str(tmp_path)))
    monkeypatch.syspath_prepend(tmp_path)
    worker = WorkerProcess({"PATH": "/usr/bin:/bin"}, timeout_s=60.0)
    yield worker
    worker.close()


def release(worker: WorkerProcess, *jobs: int) -> asyncio.Task[Any]:
    return asyncio.ensure_future(worker.call("carry_out", [Order(job, release=True) for job in jobs]))


async def begun(folder: Path) -> int:
    """Return the process that has begun its first release."""
    while not (folder / "released").exists() or not (folder / "released").read_text().endswith("\n"):
        await asyncio.sleep(0.02)
    return int((folder / "released").read_text().split()[0])


async def gone(child: int) -> None:
    while Path(f"/proc/{child}").exists():
        await asyncio.sleep(0.02)


async def cancelled(call: asyncio.Task[Any]) -> None:
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_no_order_of_a_cancelled_call_reaches_slurm_later(tmp_path: Path, slow_releases: WorkerProcess) -> None:
    # given a call that has begun the first of two orders, and another one behind it
    first, second = release(slow_releases, 1, 2), release(slow_releases, 3)
    child = await begun(tmp_path)

    # when both are cancelled
    await asyncio.gather(cancelled(second), cancelled(first))

    # then the child ends, and the next call has a new one
    await gone(child)
    (tmp_path / "go").touch()
    assert await release(slow_releases, 4) == {}
    assert [line.split()[1] for line in (tmp_path / "released").read_text().splitlines()] == ["1", "4"]


async def test_a_call_that_waits_for_its_turn_is_refused_in_time(tmp_path: Path, slow_releases: WorkerProcess) -> None:
    first = release(slow_releases, 1)
    child = await begun(tmp_path)
    slow_releases._timeout_s = 0.1
    with pytest.raises(SlurmUnavailableError, match=r"carry_out: not begun within 0\.1 s"):
        await release(slow_releases, 2)
    slow_releases._timeout_s = 60.0
    (tmp_path / "go").touch()
    assert [await first, await release(slow_releases, 3)] == [{}, {}]
    assert (tmp_path / "released").read_text().split() == [str(child), "1", str(child), "3"]


async def test_no_child_is_left_when_a_worker_is_closed_during_a_call(
    tmp_path: Path, slow_releases: WorkerProcess
) -> None:
    call = release(slow_releases, 1)
    child = await begun(tmp_path)
    slow_releases.close()
    with pytest.raises(SlurmUnavailableError):
        await call
    await gone(child)


class EndsMeanwhile(WorkerProcess):
    """Its thread ends the child right after another thread has looked at it."""

    _kept: subprocess.Popen[bytes] | None = None

    @property
    def _child(self) -> subprocess.Popen[bytes] | None:
        child = self._kept
        if child is not None and threading.current_thread() is threading.main_thread():
            self._kept = None
            child.kill()
            child.wait()
            if child.stdin is not None:
                child.stdin.close()
            os.close(self._answers)
        return child

    @_child.setter
    def _child(self, child: subprocess.Popen[bytes] | None) -> None:
        self._kept = child


async def test_a_worker_is_closed_also_when_its_thread_ends_the_child_at_that_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(module_at(tmp_path, "pass"))
    worker = EndsMeanwhile({"PATH": "/usr/bin:/bin"}, timeout_s=60.0)
    with pytest.raises(SlurmReplyError):
        await worker.call("no such call")
    assert worker._kept is not None
    worker.close()
    worker._thread._thread.join(60.0)
    assert not worker._thread._thread.is_alive()


async def test_the_thread_of_a_worker_ends_also_when_its_child_cannot_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(module_at(tmp_path, "pass"))
    worker = WorkerProcess({"PATH": "/usr/bin:/bin"}, timeout_s=60.0)
    with pytest.raises(SlurmReplyError):
        await worker.call("no such call")

    kill = os.killpg

    def refused(group: int, number: int) -> None:
        if threading.current_thread() is threading.main_thread():
            raise PermissionError("not allowed")
        kill(group, number)

    monkeypatch.setattr("controller.slurm.pyslurm.process.os.killpg", refused)
    with pytest.raises(PermissionError):
        worker.close()
    worker._thread._thread.join(60.0)
    assert not worker._thread._thread.is_alive()


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [("SUSPENDED", None, False), ("SUSPENDED", "JobHeldAdmin", True), ("RUNNING", None, True)],
)
def test_priority_0_of_a_suspended_job_is_no_hold(state: str, reason: str | None, held: bool) -> None:
    assert job_with(state=state, state_reason=reason, priority=0).held is held
