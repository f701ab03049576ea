"""signal, requeue_hold, and jobs that return to the queue after accidents."""

from __future__ import annotations

import pytest

from controller.base.errors import SlurmUnavailableError
from controller.slurm.client import Pin
from controller.slurm.model.job import Phase
from controller.slurm.model.marks import HOLD_MARK, USER_HOLD_MARK
from tests.contract.bench import Order, SlurmBench, held_gpus, job_of
from tests.contract.steps import ended, requeued, running, seen, submit_held, submit_running


class Stopping:
    """Runs end on purpose, or by accident."""

    async def test_requeue_hold_puts_a_running_job_back(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=2, admin_comment="billing=7 headway:id=rk2t9a0f"))
        assert await bench.client.requeue_hold([key]) == {}
        job = await requeued(bench, before)
        assert (job.held, job.restarts, job.allocated) == (True, 1, ())
        assert job.admin_comment == f"billing=7 headway:id=rk2t9a0f {HOLD_MARK}"
        assert job.birthmark == "rk2t9a0f"
        await bench.wait(2.0)
        assert (await seen(bench, key)).phase is Phase.PENDING

    async def test_a_requeued_job_has_a_new_identity(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1))
        await bench.client.requeue_hold([key])
        job = await requeued(bench, before)
        assert (job.key.job_id, job.key.submit_time_s > key.submit_time_s) == (key.job_id, True)
        failures = await bench.client.release([key])
        assert failures[key].gone
        assert (await seen(bench, key)).held

    async def test_an_order_to_stop_an_earlier_run_stops_no_later_one(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1))
        assert await bench.client.requeue_hold([key]) == {}
        again = await requeued(bench, before)
        assert await bench.client.set_begin_time([again.key], None) == {}
        assert await bench.client.release([again.key]) == {}
        await running(bench, again.key)
        failures = await bench.client.requeue_hold([key])
        assert failures[key].gone
        assert (await seen(bench, again.key)).phase is Phase.RUNNING

    async def test_a_requeued_job_runs_elsewhere_at_once(self, bench: SlurmBench) -> None:
        first, second, third, _ = bench.nodes[:4]
        key, job = await submit_held(bench, Order(gpus=4))
        await bench.client.pin([Pin(key, (first, second), 2, job.request)])
        await bench.client.release([key])
        before = await running(bench, key)
        await bench.client.requeue_hold([key])
        again = await requeued(bench, before)
        assert await bench.client.pin([Pin(again.key, (third,), 4, job.request)]) == {}
        assert await bench.client.release([again.key]) == {}
        assert held_gpus(await running(bench, again.key)) == {third: 4}

    async def test_a_requeued_job_gets_its_own_request_back(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gpus=4, nodes=(1, 2)))
        await bench.client.pin([Pin(key, bench.nodes[2:4], 2, job.request)])
        await bench.client.release([key])
        before = await running(bench, key)
        await bench.client.requeue_hold([key])
        again = await requeued(bench, before)
        assert await bench.client.unpin({again.key: job.request}) == {}
        request = (await seen(bench, key)).request
        assert (request.gpus_per_job, request.gpus_per_node, request.required_nodes) == (4, None, ())

    async def test_requeue_hold_of_an_array_task(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1, array=(0, 1)))
        assert await bench.client.requeue_hold([key]) == {}
        assert (await requeued(bench, before)).held
        other = job_of(await bench.client.snapshot(), key.job_id.replace("_0", "_1"))
        assert (other.phase, other.restarts) == (Phase.RUNNING, 0)

    async def test_a_hold_of_a_running_job_outlives_a_requeue(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1))
        await bench.user_hold(key)
        await bench.operator_requeue(key)
        job = await requeued(bench, before)
        assert (job.held, job.reason) == (True, "JobHeldUser")

    async def test_a_hold_that_comes_while_a_requeued_job_is_ending_stays(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1, traps=frozenset({"TERM"})))
        await bench.wait(0.5)
        await bench.operator_requeue(key)
        between = await seen(bench, key)
        await bench.user_hold(key)
        job = await requeued(bench, before)
        assert between.phase in {Phase.COMPLETING, Phase.PENDING}
        assert (job.held, job.reason) == (True, "JobHeldUser")

    async def test_a_job_that_its_user_holds_while_it_runs_is_its_users_after_a_stop(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1))
        await bench.user_hold(key)
        assert await bench.client.requeue_hold([key]) == {}
        job = await requeued(bench, before)
        assert (job.held, job.marks) == (True, {USER_HOLD_MARK})

    async def test_a_hold_that_its_user_takes_back_while_a_stopped_job_is_ending_is_over(
        self, bench: SlurmBench
    ) -> None:
        key, before = await submit_running(bench, Order(gres=1, traps=frozenset({"TERM"})))
        await bench.user_hold(key)
        assert await bench.client.requeue_hold([key]) == {}
        await bench.user_release(key)
        job = await requeued(bench, before)
        assert (job.held, job.marks) == (False, {USER_HOLD_MARK})

    async def test_ended_jobs_are_never_started_again(self, bench: SlurmBench) -> None:
        key = await bench.submit(Order(gres=1, duration_s=1))
        await bench.wait_until(lambda now: ended(now, key))
        failures = await bench.client.requeue_hold([key])
        assert set(failures) == {key}
        await bench.wait(1.0)
        job = await seen(bench, key)
        assert (job.phase, job.restarts, job.state) == (Phase.ENDED, 0, "COMPLETED")

    async def test_jobs_that_may_not_be_requeued_keep_running(self, bench: SlurmBench) -> None:
        key, _ = await submit_running(bench, Order(gres=1, requeue=False))
        failures = await bench.client.requeue_hold([key])
        assert set(failures) == {key}
        assert not failures[key].gone
        job = await seen(bench, key)
        assert (job.phase, job.requeue, job.marks) == (Phase.RUNNING, False, frozenset())

    async def test_pending_jobs_cannot_be_stopped(self, bench: SlurmBench) -> None:
        key, job = await submit_held(bench, Order(gres=1))
        assert set(await bench.client.requeue_hold([key])) == {key}
        assert (await seen(bench, key)).restarts == job.restarts

    async def test_a_job_that_ignores_term_is_back_after_the_kill_wait(self, bench: SlurmBench) -> None:
        key, before = await submit_running(bench, Order(gres=1, traps=frozenset({"TERM"})))
        await bench.wait(0.5)
        assert await bench.client.requeue_hold([key]) == {}
        between = await seen(bench, key)
        assert between.phase in {Phase.COMPLETING, Phase.PENDING}
        assert (await requeued(bench, before)).held

    async def test_signals_reach_the_script(self, bench: SlurmBench) -> None:
        survivor, _ = await submit_running(bench, Order(gres=1, traps=frozenset({"USR1"})))
        victim, _ = await submit_running(bench, Order(gres=1))
        await bench.wait(0.5)
        assert await bench.client.signal([survivor, victim], "USR1") == {}
        snapshot = await bench.wait_until(lambda now: ended(now, victim))
        assert job_of(snapshot, victim.job_id).state == "FAILED"
        assert job_of(snapshot, survivor.job_id).phase is Phase.RUNNING

    async def test_signals_need_a_run(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        assert set(await bench.client.signal([key], "USR1")) == {key}

    async def test_jobs_of_a_node_that_goes_down_are_pending_again_not_held_with_their_old_pin(
        self, bench: SlurmBench
    ) -> None:
        node = bench.nodes[2]
        key, job = await submit_held(bench, Order(gres=1))
        await bench.client.pin([Pin(key, (node,), 1, job.request)])
        await bench.client.release([key])
        before = await running(bench, key)
        await bench.down(node)
        back = await requeued(bench, before)
        assert (back.held, back.request.required_nodes) == (False, (node,))
        assert back.eligible_time_s is not None
        assert back.eligible_time_s > await bench.now() + 60
        await bench.resume(node)
        assert await bench.client.hold([back.key]) == {}
        other = bench.nodes[3]
        assert await bench.client.pin([Pin(back.key, (other,), 1, job.request)]) == {}
        assert await bench.client.release([back.key]) == {}
        assert held_gpus(await running(bench, back.key)) == {other: 1}

    async def test_an_absent_slurmctld_is_reported_as_unavailable(self, bench: SlurmBench) -> None:
        key, _ = await submit_held(bench, Order(gres=1))
        async with bench.away():
            with pytest.raises(SlurmUnavailableError):
                await bench.client.snapshot()
            with pytest.raises(SlurmUnavailableError):
                await bench.client.release([key])
        await bench.wait_until(lambda now: job_of(now, key.job_id).held)
        assert await bench.client.release([key]) == {}
        await running(bench, key)
