"""hold, mark, unmark, release, set_begin_time; and the identity of jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from controller.slurm.client import FailureReason, Pin
from controller.slurm.model.job import JobKey, Phase, SlurmJob
from controller.slurm.model.marks import HOLD_MARK, PIN_MARK, USER_HOLD_MARK
from tests.contract.bench import Order, SlurmBench, job_of
from tests.contract.steps import running, seen, submit_held, submit_running

_LONG_WAIT = Order(gres=1, begin_in_s=3600)


class Holding:
    """Holds of jobs, and the mark in their admin comment."""

    async def test_hold_stops_a_pending_job_and_marks_it(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        assert await bench.client.hold([key]) == {}
        job = await seen(bench, key)
        assert (job.held, job.marks, job.phase) == (True, {HOLD_MARK}, Phase.PENDING)
        assert job.reason == "JobHeldUser"

    async def test_the_user_may_release_what_the_client_has_held(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        assert await bench.client.hold([key]) == {}
        await bench.user_release(key)
        assert not (await seen(bench, key)).held

    async def test_an_operators_hold_becomes_one_that_the_user_may_release(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        assert await bench.client.mark([key], HOLD_MARK) == {}
        await bench.operator_hold(key)
        assert (await seen(bench, key)).reason == "JobHeldAdmin"
        with pytest.raises(Exception, match="denied"):
            await bench.user_release(key)
        assert await bench.client.hold([key]) == {}
        await bench.user_release(key)
        assert not (await seen(bench, key)).held

    async def test_hold_keeps_what_others_wrote(self, bench: SlurmBench) -> None:
        key = await bench.submit(replace(_LONG_WAIT, admin_comment="billing=7 owner=ml"))
        assert await bench.client.hold([key]) == {}
        assert await bench.client.hold([key]) == {}
        assert (await seen(bench, key)).admin_comment == f"billing=7 owner=ml {HOLD_MARK}"

    async def test_held_job_stays_held(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        assert await bench.client.hold([key]) == {}
        await bench.wait(2.0)
        assert (await seen(bench, key)).phase is Phase.PENDING

    async def test_marks_come_and_go_and_leave_the_rest(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1, admin_comment="billing=7 owner=ml"))
        client = bench.client
        assert await client.mark([key], USER_HOLD_MARK) == {}
        assert await client.mark([key], HOLD_MARK) == {}
        assert (await seen(bench, key)).marks == {HOLD_MARK, USER_HOLD_MARK}
        assert await client.unmark([key], USER_HOLD_MARK) == {}
        assert (await seen(bench, key)).admin_comment == f"billing=7 owner=ml {HOLD_MARK}"
        assert await client.unmark([key], HOLD_MARK) == {}
        assert await client.unmark([key], HOLD_MARK) == {}
        job = await seen(bench, key)
        assert (job.admin_comment, job.held) == ("billing=7 owner=ml", True)

    async def test_a_job_with_no_other_comment_ends_without_one(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        await bench.client.hold([key])
        assert await bench.client.unmark([key], HOLD_MARK) == {}
        assert (await seen(bench, key)).admin_comment == ""

    async def test_one_mark_takes_the_place_of_another(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1, admin_comment="headway:id=rk2t9a0f billing=7"))
        client = bench.client
        await client.hold([key])
        assert await client.unmark([key], HOLD_MARK, PIN_MARK) == {}
        assert await client.unmark([key], HOLD_MARK, PIN_MARK) == {}
        job, others = await seen(bench, key), "headway:id=rk2t9a0f billing=7"
        assert (job.admin_comment, job.has_pin_mark, job.marks) == (f"{others} {PIN_MARK}", True, frozenset())
        assert await client.hold([key]) == {}
        job = await seen(bench, key)
        assert (job.admin_comment, job.birthmark) == (f"{others} {HOLD_MARK}", "rk2t9a0f")

    async def test_a_released_job_that_is_held_again_keeps_its_mark(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        client = bench.client
        assert await client.hold([key]) == {}
        failures = await client.unmark([key], HOLD_MARK, PIN_MARK, unless_held=True)
        assert failures[key].reason is FailureReason.NOT_OURS
        assert (await seen(bench, key)).admin_comment == HOLD_MARK
        assert await client.release([key]) == {}
        assert await client.unmark([key], HOLD_MARK, PIN_MARK, unless_held=True) == {}
        assert (await seen(bench, key)).admin_comment == PIN_MARK

    async def test_running_jobs_can_be_marked_but_not_held(self, bench: SlurmBench) -> None:
        key, _ = await submit_running(bench, Order(gres=1, admin_comment="billing=7"))
        assert set(await bench.client.hold([key])) == {key}
        job = await seen(bench, key)
        assert (job.phase, job.marks, job.held) == (Phase.RUNNING, frozenset(), False)
        assert await bench.client.mark([key], HOLD_MARK) == {}
        assert (await seen(bench, key)).admin_comment == f"billing=7 {HOLD_MARK}"

    async def test_release_lets_slurm_start_the_job(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=2))
        assert await bench.client.release([key]) == {}
        job = await running(bench, key)
        assert not job.held

    async def test_release_after_hold(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=2))
        await bench.client.hold([key])
        assert await bench.client.release([key]) == {}
        await running(bench, key)

    async def test_array_tasks_are_released_one_by_one(self, bench: SlurmBench) -> None:
        first, _ = await submit_held(bench, Order(gres=1, array=(0, 1, 2)))
        array_id = first.job_id.partition("_")[0]
        second = JobKey(f"{array_id}_1", first.submit_time_s)
        assert await bench.client.hold([second]) == {}
        assert await bench.client.release([second]) == {}
        await running(bench, second)
        snapshot = await bench.client.snapshot()
        others = [job_of(snapshot, f"{array_id}_{task}") for task in (0, 2)]
        assert all(job.held and job.phase is Phase.PENDING for job in others)
        assert HOLD_MARK in job_of(snapshot, second.job_id).marks

    async def test_a_job_that_its_user_holds_is_neither_marked_nor_placed_nor_released(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        await bench.user_hold(key)
        await self._is_left_alone(bench, await seen(bench, key))

    async def test_a_job_that_an_operator_holds_is_neither_marked_nor_placed_nor_released(
        self, bench: SlurmBench
    ) -> None:
        key = await bench.submit(_LONG_WAIT)
        await bench.operator_hold(key)
        await self._is_left_alone(bench, await seen(bench, key))

    async def test_a_hold_that_comes_after_the_reading_stays_its_users(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        job = await seen(bench, key)  # free, when it was read
        await bench.user_hold(key)
        await self._is_left_alone(bench, replace(job, held=True, reason="JobHeldUser"))

    async def test_a_job_that_was_handed_over_to_its_user_is_not_held_for_headway(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        await bench.user_hold(key)
        assert await bench.client.mark([key], USER_HOLD_MARK) == {}
        assert (await bench.client.hold([key]))[key].reason is FailureReason.NOT_OURS
        assert (await seen(bench, key)).admin_comment == USER_HOLD_MARK

    async def _is_left_alone(self, bench: SlurmBench, job: SlurmJob) -> None:
        client, key = bench.client, job.key
        answers = [
            await client.hold([key]),
            await client.pin([Pin(key, (bench.nodes[0],), 1, job.request)]),
            await client.release([key]),
        ]
        assert [failures[key].reason for failures in answers] == [FailureReason.NOT_OURS] * len(answers)
        after = await seen(bench, key)
        assert (after.held, after.reason, after.request) == (True, job.reason, job.request)
        assert (after.admin_comment, after.eligible_time_s) == (job.admin_comment, job.eligible_time_s)

    async def test_user_holds_show_as_such(self, bench: SlurmBench) -> None:
        key = await bench.submit(_LONG_WAIT)
        await bench.user_hold(key)
        job = await seen(bench, key)
        assert (job.held, job.reason) == (True, "JobHeldUser")
        await bench.user_release(key)
        assert not (await seen(bench, key)).held

    async def test_a_user_may_take_back_the_hold_of_a_running_job(self, bench: SlurmBench) -> None:
        key, _ = await submit_running(bench, Order(gres=1))
        await bench.user_hold(key)
        job = await seen(bench, key)
        assert (job.held, job.phase) == (True, Phase.RUNNING)
        assert (await bench.client.release([key])).keys() <= {key}  # Headway's own release leaves that hold alone
        assert (await seen(bench, key)).held
        await bench.user_release(key)
        job = await seen(bench, key)
        assert (job.held, job.phase) == (False, Phase.RUNNING)

    async def test_a_begin_time_delays_a_start_and_can_be_cleared(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        later_s = await bench.now() + 3600
        assert await bench.client.set_begin_time([key], later_s) == {}
        assert await bench.client.release([key]) == {}
        snapshot = await bench.wait_until(lambda now: job_of(now, key.job_id).reason == "BeginTime")
        eligible_s = job_of(snapshot, key.job_id).eligible_time_s
        assert eligible_s is not None
        assert abs(eligible_s - later_s) <= 1
        assert await bench.client.set_begin_time([key], None) == {}
        await running(bench, key)

    async def test_no_verb_touches_another_job_with_the_same_id(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1, admin_comment="billing=7"))
        stale = key._replace(submit_time_s=key.submit_time_s - 3600)
        client, node = bench.client, bench.nodes[0]
        answers = [
            await client.hold([stale]),
            await client.mark([stale], HOLD_MARK),
            await client.unmark([stale], HOLD_MARK),
            await client.pin([Pin(stale, (node,), 1, job.request)]),
            await client.unpin({stale: job.request}),
            await client.release([stale]),
            await client.signal([stale], "USR1"),
            await client.requeue_hold([stale]),
            await client.set_begin_time([stale], None),
        ]
        assert [(set(failures), failures[stale].gone) for failures in answers] == [({stale}, True)] * len(answers)
        assert await seen(bench, key) == job

    async def test_jobs_that_slurm_does_not_know_are_gone(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        unknown, no_task = JobKey("999999", key.submit_time_s), JobKey("999999_7", key.submit_time_s)
        failures = await bench.client.release([unknown, key, no_task])
        assert {name: failure.gone for name, failure in failures.items()} == {unknown: True, no_task: True}
        await running(bench, key)

    async def test_no_jobs_no_work(self, bench: SlurmBench) -> None:
        client = bench.client
        assert await client.hold([]) == {}
        assert await client.pin([]) == {}
        assert await client.unpin({}) == {}
        assert await client.release([]) == {}
        assert await client.requeue_hold([]) == {}
