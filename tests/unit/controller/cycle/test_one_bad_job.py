"""A job of which any value leads to an error of Headway's own stops no cycle, and keeps no other job from running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.base.apart import LEFT_OUT
from controller.base.errors import SlurmError
from controller.cycle.decision.decision_log import DecisionLog
from controller.cycle.decision.policy_stops import PolicyStops
from controller.cycle.decision.purposes import Purposes
from controller.cycle.hold_files import HoldFiles
from controller.cycle.room.preemptions import SlurmPreemption
from controller.observe import classification, observer
from controller.observe.columns import build_state
from controller.observe.role import Role
from controller.preempt.manager import PreemptionManager
from controller.slurm.client import Failures, Pin
from controller.slurm.embedded import ClusterDescription, GpuLimit, sbatch_request
from controller.slurm.model.cluster import SlurmSnapshot
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.state.preemption import Cause, Stage
from policies.model import ClusterState
from tests.unit.controller.examples.poisoned import Uses, poisoned
from tests.unit.controller.worlds.world import World

FIELDS = {
    "request": (0, 3, 20, 80, 150),
    "allocated": (0, 3, 14),
    "start_time_s": (0, 5),
    "end_time_s": (0,),
    "time_limit_s": (0,),
    "partition": (0, 4),
    "comment": (0,),
    "dependency": (0,),
    "features": (0,),
    "user": (0,),
    "name": (0,),
}
"""Fields that are poisoned, and numbers of uses after which they are."""


class PoisoningClient:
    """A client of which one job has a value that fails when it is used."""

    def __init__(self, inner: Any, bad: JobKey, field: str, uses: Uses) -> None:
        self._inner = inner
        self._bad = bad.job_id
        self._field = field
        self._uses = uses
        self._last: tuple[SlurmJob, SlurmJob] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _poisoned(self, job: SlurmJob) -> SlurmJob:
        if job.key.job_id != self._bad:
            return job
        if self._last is None or self._last[0] is not job:  # an unchanged job stays the same object, as of every client
            self._last = job, poisoned(job, self._field, self._uses)
        return self._last[1]

    async def snapshot(self) -> SlurmSnapshot:
        found = await self._inner.snapshot()
        return replace(found, jobs=tuple(map(self._poisoned, found.jobs)))

    async def read(self, keys: Sequence[JobKey]) -> dict[JobKey, SlurmJob]:
        return {key: self._poisoned(job) for key, job in (await self._inner.read(keys)).items()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    description = ClusterDescription(limits=(GpuLimit(user="bob", gpus=4),))
    return World(
        tmp_path / "world", description, settings_changes={"preemption": "automatic", "preemption_min_run_s": 0.0}
    )


def poison(world: World, bad: JobKey, field: str, harmless: int) -> None:
    world.slurm.client = PoisoningClient(world.slurm.client, bad, field, Uses(harmless))  # type: ignore[assignment]
    world.restart()


@pytest.mark.parametrize(("field", "harmless"), [(field, n) for field, numbers in FIELDS.items() for n in numbers])
async def test_every_other_job_runs(world: World, field: str, harmless: int) -> None:
    # Given a job with a value that no code expected, and others
    first = world.sbatch(8.0, gpus_per_node=1)
    bad = world.sbatch(
        20.0, request=sbatch_request(gpus=4), comment="headway=preemptible+min-gpus:2+max-gpus:8+steps:100",
        time_limit_s=600.0, dependency=f"afterok:{first.job_id}",
    )  # fmt: skip
    poison(world, bad, field, harmless)
    others = [first, world.sbatch(5.0, gpus_per_node=4, user="bob")]
    # When it waits, runs, is requeued, changed and held, and the controller is restarted, with its journal and without
    for act in (
        lambda: world.slurm.requeue(bad.job_id),
        lambda: world.slurm.update(bad.job_id, NumNodes="2"),
        lambda: world.slurm.user_hold(bad.job_id),
        lambda: world.slurm.user_release(bad.job_id),
        lambda: world.restart(),
        lambda: world.restart("another.sqlite"),
        lambda: world.slurm.requeue(bad.job_id),
    ):
        with suppress(SlurmError):
            act()
        others.append(world.sbatch(3.0, gpus_per_node=8, user="cat"))
        await world.go_on(12)  # no cycle fails
    # Then all others have run
    await world.go_on(40)
    assert {world.slurm.job(key.job_id).state for key in others} == {"COMPLETED"}


async def test_a_job_whose_facts_cannot_be_stored_is_not_placed_and_the_journal_keeps_the_others(world: World) -> None:
    bad = world.sbatch(gpus_per_node=1)
    poison(world, bad, "request", 10**9)
    good = world.sbatch(gpus_per_node=1)
    uses = world.slurm.client._uses  # type: ignore[attr-defined]
    save = world.journal.save_jobs

    def save_poisoned(*arguments: Any) -> set[JobKey]:
        uses.harmless = 0
        try:
            return save(*arguments)
        finally:
            uses.harmless = 10**9

    world.journal.save_jobs = save_poisoned  # type: ignore[method-assign]
    await world.turn()
    assert bad not in world.ledger.pins, "without its own request in the journal, no job is pinned"
    assert world.journal.load_ledger().pins.keys() == {good}
    await world.go_on(40)
    assert world.phase(good) is Phase.RUNNING
    assert world.phase(bad) is Phase.RUNNING, "Slurm places it after some attempts"
    assert bad not in world.journal.load_ledger().pins


async def test_a_job_that_fails_the_columns_of_all_jobs_is_left_to_slurm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a job of which no column can be made, between others
    others = [world.sbatch(5.0, gpus_per_node=1) for _ in range(3)]
    bad = world.sbatch(40.0, gpus_per_node=8)
    others += [world.sbatch(5.0, gpus_per_node=1, user="cat") for _ in range(4)]

    def fails_with_bad(**columns: Any) -> ClusterState:
        if bad.job_id in columns["rows"].ids:
            raise OverflowError("Python int too large to convert to C long")
        return build_state(**columns)

    monkeypatch.setattr(observer, "build_state", fails_with_bad)
    # When it waits, and runs
    result = await world.turn()
    assert result.observation.standings[bad].role is Role.YIELDED
    await world.go_on(10)
    assert world.phase(bad) is Phase.RUNNING, "Slurm places it"
    # Then all others are placed, on other GPUs
    late = [world.sbatch(5.0, gpus_per_node=8) for _ in range(4)]
    await world.go_on(25)
    assert {world.slurm.job(key.job_id).state for key in others} == {"COMPLETED"}
    assert not {name for key in late for name in world.nodes(key)} & world.nodes(bad).keys()
    assert all(world.journal.decisions_of(key) for key in others)


async def test_a_share_of_a_node_that_fails_the_columns_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = world.sbatch(60.0, gpus_per_node=1, batch=False)
    await world.clock.advance(3.0)
    assert world.phase(foreign) is Phase.RUNNING

    def fails_with_shares(**columns: Any) -> ClusterState:
        if columns["foreign"]:
            raise OverflowError("Python int too large to convert to C long")
        return build_state(**columns)

    monkeypatch.setattr(observer, "build_state", fails_with_shares)
    key = world.sbatch(gpus_per_node=1)
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING


async def test_an_error_without_any_job_fails_the_cycle(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> ClusterState:
        raise OverflowError("Python int too large to convert to C long")

    monkeypatch.setattr(observer, "build_state", fails)
    key = world.sbatch(gpus_per_node=1)
    with pytest.raises(OverflowError):
        await world.turn()
    assert world.slurm.job(key.job_id).held


async def test_throttles_that_cannot_be_read_keep_no_job_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> dict[int, int]:
        raise ArithmeticError("a number that is none")

    monkeypatch.setattr(classification, "rooms", fails)
    key = world.sbatch(gpus_per_node=1)
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING


@pytest.mark.parametrize(
    "part",
    [
        (SlurmPreemption, "added"), (SlurmPreemption, "withheld"), (HoldFiles, "tidy"), (Purposes, "call_off_useless"),
        (DecisionLog, "record"), (PolicyStops, "begin"),
    ],
)  # fmt: skip
async def test_a_part_of_a_cycle_that_fails_keeps_no_job_from_starting(
    world: World, monkeypatch: pytest.MonkeyPatch, part: tuple[type, str]
) -> None:
    def broken(*_: object, **__: object) -> object:
        raise ArithmeticError("a number that is none")

    monkeypatch.setattr(*part, broken)
    key = world.sbatch(gpus_per_node=1)
    await world.go_on(3)
    assert world.phase(key) is Phase.RUNNING


async def test_a_preemption_that_leads_to_an_error_keeps_no_other_from_being_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"comment": "headway=preemptible", "traps": frozenset({"USR1"}), "gpus_per_node": 8}
    keys = [world.sbatch(1000.0, **options) for _ in range(2)]
    await world.go_on(4)
    jobs = {job.key.job_id: job for job in (await world.slurm.client.snapshot()).jobs}
    for key in keys:
        world.preemptions.begin(jobs[key.job_id], Cause.OPERATOR, "a test")
    follow = PreemptionManager._update

    def broken(self: PreemptionManager, attempt: Any, job: SlurmJob | None) -> None:
        if attempt.row.job_id == keys[0].job_id:
            raise ArithmeticError("a number that is none")
        follow(self, attempt, job)

    monkeypatch.setattr(PreemptionManager, "_update", broken)
    await world.go_on(3)
    for key in keys:
        world.slurm.requeue(key.job_id)
    await world.go_on(10)
    stages = {row.job_id: row.stage for row in world.preemptions.newest(10)}
    assert stages[keys[1].job_id] is Stage.STARTED
    assert world.phase(keys[0]) is Phase.RUNNING


class BrokenPins:
    """A client that fails to pin one job."""

    def __init__(self, inner: Any, bad: JobKey) -> None:
        self._inner = inner
        self._bad = bad

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def pin(self, pins: Sequence[Pin]) -> Failures:
        if any(pin.key == self._bad for pin in pins):
            raise ArithmeticError("a number that is none")
        found: Failures = await self._inner.pin(pins)
        return found


@pytest.fixture
def before() -> Iterator[dict[str, int]]:
    yield LEFT_OUT.counts()


async def test_a_call_to_slurm_that_fails_for_one_job_is_made_for_the_others(
    world: World, before: dict[str, int]
) -> None:
    keys = [world.sbatch(500.0, gpus_per_node=1) for _ in range(5)]
    world.slurm.client = BrokenPins(world.slurm.client, keys[2])  # type: ignore[assignment]
    world.restart()
    with capture_logs() as logs:
        await world.go_on(40)
    assert [world.phase(key) for key in keys] == [Phase.RUNNING] * 5
    assert not world.journal.open_intents()
    assert keys[2] not in world.ledger.pins, "it is given to Slurm after some attempts"
    assert LEFT_OUT.counts()["calls to Slurm: pin"] > before.get("calls to Slurm: pin", 0)
    assert len([line for line in logs if line["event"] == "left_out"]) <= 2, "each kind once"
