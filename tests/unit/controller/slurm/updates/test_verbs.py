"""The changing verbs over a Slurm that fails at the worst moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from controller.base.errors import SlurmUnavailableError
from controller.slurm.client import FailureReason, Pin
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK
from controller.slurm.records import JobRecord
from controller.slurm.updates.changes import Command
from controller.slurm.updates.found import Found
from controller.slurm.updates.verbs import Requeue, Verbs
from tests.unit.controller.examples.build import NOW_S, job, running


class EndsFirst(Verbs):
    """One job, which ends just before it is requeued; then slurmctld does not answer for a while."""

    def __init__(self, job: SlurmJob) -> None:
        super().__init__(lambda: NOW_S)
        self.job = job
        self.away = False

    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        if self.away:
            raise SlurmUnavailableError("no answer")
        for word in (word for command in first for word in command.words if word.startswith("AdminComment=")):
            self.job = replace(self.job, admin_comment=word.removeprefix("AdminComment="))
        return {self.job.key: Found(self.job, JobRecord(1, (self.job,), True, True, False, ""))}

    async def carry_out(self, commands: Sequence[Command]) -> bool:
        await self._find([], commands)
        return True

    async def complaint(self, command: Command) -> str:
        return ""

    async def send_signal(self, job: SlurmJob, signal: str) -> str | None:
        return None

    async def requeue(self, job: SlurmJob) -> Requeue:
        ended = replace(job, phase=Phase.ENDED, state="COMPLETED")
        key = JobKey(job.key.job_id, job.key.submit_time_s + 50)
        pending = {"phase": Phase.PENDING, "state": "PENDING", "held": True, "reason": "JobHeldAdmin", "restarts": 1}
        self.job = replace(self.job, key=key, allocated=(), **pending)
        self.away = True
        return Requeue(ended, self.job, "")

    def _reads_all(self, keys: Sequence[JobKey]) -> bool:
        return False


async def test_an_ended_job_is_not_run_again_when_its_mark_could_not_be_removed() -> None:
    # given a job that ended just before it was to be stopped, and a slurmctld that does not answer then
    slurm = EndsFirst(running(on={"n1": 2}))
    before = slurm.job.key
    failed = (await slurm.requeue_hold([before]))[before]
    assert failed.reason is FailureReason.ENDED_FIRST
    assert "scontrol release" in failed.message
    assert "still has Headway's mark" in failed.message
    assert HOLD_MARK in slurm.job.marks
    # when it is to be placed, once slurmctld answers
    slurm.away = False
    pin = Pin(slurm.job.key, ("n1",), 2, slurm.job.request)
    assert "had ended" in (await slurm.pin([pin]))[slurm.job.key].message
    # then it is left as it is, without the mark
    assert slurm.job.marks == frozenset()
    assert slurm.job.held
    assert slurm.job.request.required_nodes == ()


async def test_one_that_somebody_released_meanwhile_may_be_placed() -> None:
    slurm = EndsFirst(running(on={"n1": 2}))
    await slurm.requeue_hold([slurm.job.key])
    slurm.away = False
    await slurm.hold([slurm.job.key])
    assert await slurm.release([slurm.job.key]) == {}
    assert HOLD_MARK in slurm.job.marks


class Requeues(EndsFirst):
    """One job that runs when it is requeued. Slurm takes a while for that, and shows the job after it in a given phase."""

    def __init__(self, job: SlurmJob, phase: Phase, took_s: float) -> None:
        super().__init__(job)
        self.phase, self.took_s, self.at_s = phase, took_s, 100.0
        self._monotonic = lambda: self.at_s

    async def requeue(self, job: SlurmJob) -> Requeue:
        before = self.job
        self.job = (await super().requeue(job)).after or job
        self.at_s += self.took_s
        self.away = False
        return Requeue(before, replace(self.job, phase=self.phase), "")


@pytest.mark.parametrize(
    ("took_s", "paused"), [(0.005, False), (0.03, False), (0.25, False), (0.005, True), (0.25, True), (3.0, True)]
)
@pytest.mark.parametrize("phase", [Phase.COMPLETING, Phase.PENDING])
async def test_a_job_that_ran_right_before_its_requeue_was_stopped_however_late_slurm_shows_it(
    phase: Phase, took_s: float, paused: bool
) -> None:
    slurm = Requeues(running(on={"n1": 2}), phase, took_s)
    key = slurm.job.key
    assert await slurm.requeue_hold([key], paused=[key] if paused else []) == {}
    assert HOLD_MARK in slurm.job.marks, "Headway places it again"


@pytest.mark.parametrize(("took_s", "paused"), [(3.0, False), (60.0, False), (60.0, True)])
async def test_a_job_that_was_seen_running_long_before_may_have_ended(took_s: float, paused: bool) -> None:
    slurm = Requeues(running(on={"n1": 2}), Phase.PENDING, took_s)
    key = slurm.job.key
    (failed,) = (await slurm.requeue_hold([key], paused=[key] if paused else [])).values()
    assert failed.reason is FailureReason.ENDED_FIRST
    assert HOLD_MARK not in slurm.job.marks
    slurm = Requeues(running(on={"n1": 2}), Phase.COMPLETING, took_s)
    assert await slurm.requeue_hold([slurm.job.key]) == {}, "it is completing, so it had not ended"


class Slow(EndsFirst):
    """One requeued job that may start in two minutes. Slurm takes seconds for a change, and "now" is when it carries that out."""

    def __init__(self, job: SlurmJob) -> None:
        super().__init__(job)
        self.now_s = NOW_S
        self._now = lambda: self.now_s

    async def _find(self, keys: Sequence[JobKey], first: Sequence[Command] = ()) -> dict[JobKey, Found]:
        if any("StartTime=now" in command.words for command in first):
            self.now_s += 3.0
            self.job = replace(self.job, eligible_time_s=self.now_s)
        return await super()._find(keys, first)


async def test_a_slow_slurm_has_still_carried_out_a_start_that_is_now() -> None:
    waiting = job(held=True, restarts=1, eligible_time_s=NOW_S + 120)
    slurm = Slow(waiting)
    assert await slurm.set_begin_time([waiting.key], None) == {}
    assert slurm.job.eligible_time_s == NOW_S + 3.0


class Launches(EndsFirst):
    """One held job; remembers when it was released."""

    def __init__(self, job: SlurmJob) -> None:
        super().__init__(job)
        self.now_s, self.released_s = NOW_S + 0.3, 0.0
        self._now = lambda: self.now_s

    async def sleep(self, for_s: float) -> None:
        self.now_s += for_s

    async def carry_out(self, commands: Sequence[Command]) -> bool:
        self.released_s = self.now_s
        return True


@pytest.mark.parametrize("restarts", [0, 1])
async def test_a_job_that_was_requeued_in_this_second_is_released_in_the_next(
    restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a job that was submitted, or requeued, just now
    second = int(NOW_S)
    slurm = Launches(job(submit=second, held=True, restarts=restarts))
    monkeypatch.setattr("controller.slurm.updates.verbs.asyncio", SimpleNamespace(sleep=slurm.sleep))
    # when it is released
    assert await slurm.release([slurm.job.key]) == {}
    # then a requeued one waits until no node takes its launch for that of the run that it has killed
    assert int(slurm.released_s) == second + restarts
