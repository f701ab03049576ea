"""A job that is slow because a GPU of it is throttled or fails is not taken for one that other jobs slow down.

From the driver to the threshold: readings of a child process with a fake driver, the agent's comparison and encoding, the store of
profiles, the contention of each run, and the service that begins moves.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from headway_client import AsyncClient

from controller.admin.explain.advice_text import _CAUSES
from controller.contention.service import ContentionService
from controller.profiles.current import contention, newest
from controller.profiles.sensitivity import Priors
from controller.profiles.store import ProfileStore, StoreSettings
from nodeagent.telemetry.impairment import Impairments, of_job
from nodeagent.telemetry.nvml import NvmlReader
from nodeagent.telemetry.slurm_jobs import SlurmJob
from nodeagent.uplink.encode import job_message
from nodeagent.wire.report import ImpairedGpu, Impairment, JobReport, NodeReport, SocketCounters
from protos.headway.v1 import agent_pb2
from tests.unit.controller.contention.test_service import Begun
from tests.unit.controller.cycle.decision.test_decider import FakeEndpoint
from tests.unit.controller.examples.reports import Agents, Training
from tests.unit.controller.worlds.controller_world import ControllerWorld
from tests.unit.controller.worlds.measured import measured_world
from tests.unit.policies.processes import eventually

ROOT = Path(__file__).parents[4]
FAKE = ROOT / "tests/unit/nodeagent/telemetry/fake_nvml"
WINDOW_S = 30.0
S = 1_000_000_000
SETTINGS = {"preemption": "automatic", "contention_sustained_s": 60, "preemption_min_run_s": 60}


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment of a child with the fake driver and the tested modules."""
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}:{ROOT}")
    yield monkeypatch


async def readings(behaviour: str, driver: pytest.MonkeyPatch) -> tuple[ImpairedGpu, ...]:
    """Return the impaired GPUs of a job with GPU 1, as the agent finds them in two readings of that driver, 5 s apart."""
    driver.setenv("FAKE_NVML", behaviour)
    reader, impairments = NvmlReader(60.0), Impairments()
    job = SlurmJob(1, 1000, 0, (), frozenset(), (1,))
    try:
        first, second = await reader.read(), await reader.read()
    finally:
        await reader.close()
    assert first is not None and second is not None
    impairments.read(first, 0)
    return of_job(job, second, impairments.read(second, 5 * S))


def encoded(impaired: tuple[ImpairedGpu, ...]) -> agent_pb2.JobReport:
    """The field as the agent sends it."""
    nothing = dict.fromkeys(JobReport.__dataclass_fields__)
    row = JobReport(**{
        **nothing, "job_id": 1, "uid": 1000, "restart": 0, "first_seen_ns": 0, "ranks": (), "claimed_job_ids": (),
        "num_connected": 0, "num_ended": 0, "num_lost": 0, "impaired": impaired,
    })  # type: ignore[arg-type]  # fmt: skip
    report = NodeReport("n1", 0.0, 0, None, (row,), None, (), SocketCounters(0, 0, 0, 0, 0, 0, 0))
    sent = job_message(row, report).SerializeToString()
    return agent_pb2.AgentReport.FromString(sent).job


@pytest.mark.parametrize(
    ("behaviour", "cause"),
    [
        ("good", ""), ("throttled", "thermal"), ("xid later", "xid"), ("lost later", "lost"), ("lost inside", "lost"),
        ("remapping failed later", "memory"), ("nvlink errors later", "nvlink"), ("pcie replays later", "pcie"),
    ],
)  # fmt: skip
async def test_a_throttled_or_failing_gpu_is_never_taken_for_contention(
    tmp_path: Path, driver: pytest.MonkeyPatch, behaviour: str, cause: str
) -> None:
    # given what the agent of n1 reports about GPU 1, for both jobs
    impaired = await readings(behaviour, driver)
    assert [gpu.causes for gpu in impaired] == ([(cause,)] if cause else [])
    sent = encoded(impaired)
    # and two jobs on the same nodes, each with half of the speed that the first had alone
    world = ControllerWorld(tmp_path, endpoint=FakeEndpoint(away=True), settings_changes=SETTINGS)
    begun = world.preemptions = Begun()  # type: ignore[assignment]
    judging = ContentionService(world, WINDOW_S)  # type: ignore[arg-type]
    first, second = (world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2) for _ in range(2))
    await world.go_on(90)
    ids, agents = (int(first.job_id), int(second.job_id)), Agents()
    with closing(ProfileStore(tmp_path / "profiles.sqlite", StoreSettings(window_s=WINDOW_S, lag_s=0.0))) as store:
        start_s = (world.clock.now() // WINDOW_S + 1) * WINDOW_S

        def jobs(steps_per_s: float, *numbers: int) -> list[Training]:
            return [
                Training(each, ("n1", "n2"), steps_per_s, start_s=start_s - 1e5, end_s=1e12, gpus=4, ranks=4)
                for each in numbers
            ]

        store.take(agents.watch(jobs(6.0, ids[0]), start_s, start_s + 8 * WINDOW_S))
        # when windows pass with both
        for window in range(8, 14):
            at_s = start_s + window * WINDOW_S
            arrivals = agents.watch(jobs(3.0, *ids), at_s, at_s + WINDOW_S)
            for arrival in arrivals:
                if arrival.node == "n1":
                    arrival.report.job.impaired.extend(sent.impaired)
            store.take(arrivals)
            await world.clock.advance(max(at_s + WINDOW_S + 1 - world.clock.now(), 0))
            store.compute_windows(world.clock.now())
            windows = newest(store, at_s, {node: list(ids) for node in ("n1", "n2")})
            world.know({run: contention(store, item, Priors()) for run, item in windows.items()})
            await judging.judge(await world.turn())
        # then one of them is moved, unless its GPU was the reason
        assert bool(begun.requests) == (not cause)
        assert {run.job_id for run in windows} == (set() if cause else set(ids))
        # and users are told why nothing is judged
        assert store.impaired(start_s) == (dict.fromkeys(ids, cause) if cause else {})


def test_every_cause_has_words_for_users() -> None:
    assert set(_CAUSES) == set(get_args(Impairment))


async def test_why_says_that_a_gpu_was_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        async with measured_world(Path(folder), monkeypatch) as (world, fleet):
            world.sbatch(duration_s=1e6, gpus_per_node=4, nodes=2)
            await world.go_on(3)
            report = Training(1, ("n1", "n2"), 3.0, start_s=time.time() - 1000, end_s=1e12).report("n1", time.time())
            report.job.impaired.add(index=0, causes=["power", "thermal", "a word of a later agent"])
            fleet.agents["n1"].outbox.put(report, keep=True)
            await eventually(lambda: _is_impaired(world))
            async with AsyncClient(Path(folder) / "status.sock") as client:
                found = await client.why(1)
            assert found.sentence.endswith(
                "GPUs of it were slower than they should be (throttled by power, throttled by temperature), so its speed at that "
                "time does not count as contention."
            )
            assert found.facts["impaired_gpus"] == "power,thermal"


async def _is_impaired(world: ControllerWorld) -> bool:
    return world.measurement is not None and bool(world.measurement.impaired)
