"""Checks that a controller can answer, whatever users have written: queue, explanations, metrics, and the state for policies."""

from __future__ import annotations

from collections.abc import Callable

from headway_client import calls
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from controller.admin.explain.cycle_view import CycleView
from controller.admin.explain.explain import explain
from controller.admin.messages import cluster, explanation, queue_entries
from controller.admin.metrics.exporter import make_registry
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.notify.message import JobEvent, Notification
from controller.observe.role import Role
from policies.wire.messages import serialize_state
from protos.headway.v1 import admin_pb2

_EVERY = 8
"""Number of good cycles from one check to the next."""


class WrongAnswerError(AssertionError):
    """An answer lacks a job, or shows another text than the job has."""


def answers_of(controller: ControllerView) -> Callable[[CycleResult], None]:
    """Return a listener of the controller that checks its answers after some cycles. It raises what it finds."""
    registry = make_registry(controller)
    left = _EVERY

    def check(result: CycleResult) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            left = _EVERY
            _check(controller, result, registry)

    return check


def _check(controller: ControllerView, result: CycleResult, registry: CollectorRegistry) -> None:
    now_s, view = controller.clock.now(), CycleView(result, controller.ledger, controller.settings.partitions)
    queue = admin_pb2.Queue(entries=queue_entries(view, now_s, steps_done=controller.preemptions.steps_done))
    answer = calls.queue().decode([queue.SerializeToString()])
    shown = {entry.job_id: entry for entry in answer.entries}
    for job, standing in view.jobs():
        entry = shown.get(job.key.job_id)
        if entry is None or (entry.user, entry.name) != (job.user, job.name):
            raise WrongAnswerError(f"job {job.key.job_id} of {job.user!r}, named {job.name!r}, is shown as {entry}")
        found = explain(view, job.key.job_id, now_s)
        if found is not None:
            calls.why(job.key.job_id).decode([explanation(found, [], "").SerializeToString()])
        Notification(JobEvent.STARTED, now_s, "c", job, standing.why).body()
    calls.status().decode([cluster(view, lambda _: "").SerializeToString()])
    waiting = sum(standing.role is Role.WAITING for _, standing in view.jobs())
    families = {each.name: each for each in text_string_to_metric_families(generate_latest(registry).decode())}
    counted = {sample.labels["role"]: sample.value for sample in families["headway_jobs"].samples}
    if counted["waiting"] != waiting:
        raise WrongAnswerError(f"/metrics counts {counted['waiting']} waiting jobs instead of {waiting}")
    serialize_state(result.observation.state)
