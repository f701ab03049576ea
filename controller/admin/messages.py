"""Messages of the Admin service, made of the controller's state. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from controller.admin.explain.cycle_view import SHOWN, CycleView
from controller.admin.explain.explain import Explained, brief, state_word
from controller.admin.explain.wait_reason import reason_of
from controller.base.apart import LEFT_OUT, apart
from controller.base.lease import is_stale, read_lease
from controller.base.start_text import start_sentence
from controller.base.step_text import steps_sentence
from controller.base.text import clip
from controller.base.watchdog_mark import is_silent, last_check_s
from controller.forecast.estimate import StartEstimate, Starts, no_starts
from controller.observe.not_understood import not_understood
from controller.observe.observer import StepsDone
from controller.observe.role import Role, Standing
from controller.observe.user_options import read_user_options
from controller.preempt.budget import PreemptionBudget
from controller.slurm.model.job import SlurmJob
from controller.state.journal import PlacedEntry
from controller.state.preemption import Stage
from policies.serving.runtime.tasks.supervise import TROUBLE_S, TaskFailure
from protos.headway.v1 import admin_pb2

if TYPE_CHECKING:
    from controller.admin.metrics.metered_client import CallCount
    from controller.agents.node_table import NodeStatus
    from controller.contention.measurement import Measurement
    from controller.cycle.decision.decider import Decider
    from controller.cycle.view.controller_view import ControllerView
    from policies.api import LearningStatus

_MOST_PREEMPTIONS = 1000
"""Newest preemptions from which the budget that is left is computed."""
SKEW_S = 1.0
"""Clock difference of a node from which on it is reported, in seconds. Measurements are corrected by any difference."""


def policy_info(decider: Decider) -> admin_pb2.PolicyInfo:
    """Return the policy that decides, and the address of its server."""
    spec = decider.spec
    return admin_pb2.PolicyInfo(
        name="" if spec is None else spec.name,
        version="" if spec is None else spec.version,
        source="" if spec is None else spec.source,
        address=decider.address,
        serving=decider.serving,
        fallback=decider.fallback_name,
        last_error=decider.last_error,
        learning=None if spec is None else _learning(spec.learning),
    )


def _learning(status: LearningStatus | None) -> admin_pb2.PolicyLearning | None:
    """Return the state of the policy's continued learning; None if it does not learn."""
    return None if status is None else admin_pb2.PolicyLearning(enabled=True, **asdict(status))


def status(controller: ControllerView, version: str) -> admin_pb2.Status:
    """Return the state of the controller and its policy; `cluster` adds jobs and nodes."""
    health, facts, counts = controller.health, controller.facts, controller.decider.counts
    now_s, uptime_s = controller.clock.now(), controller.clock.monotonic() - health.begun_at_s
    lease = read_lease(controller.settings.lease_path)
    needs_watchdog = controller.settings.slurm_client != "embedded"
    checked_s = last_check_s(controller.settings.runtime_dir) if needs_watchdog else 0.0
    under_way = controller.preemptions.open.values()
    budget = PreemptionBudget(controller.settings, controller.preemptions.newest(_MOST_PREEMPTIONS), now_s)
    return admin_pb2.Status(
        version=version,
        uptime_s=uptime_s,
        slurm_version="" if facts is None else "{}.{:02}.{}".format(*facts.version),
        slurm_client="" if facts is None else facts.client,
        snapshot_time_s=health.snapshot_time_s,
        snapshot_read_s=health.read_s,
        plan_s=health.plan_s,
        policy=policy_info(controller.decider),
        decisions=counts.decisions,
        rejects=counts.rejects,
        fallbacks=counts.fallbacks,
        guarded=counts.guarded,
        guard=controller.decider.guard,
        outside=controller.decider.outside,
        slurm_errors=controller.slurm_errors,
        last_error=health.last_error or controller.journal.notice or controller.decider.last_error,
        partitions=controller.settings.partitions,
        lease_time_s=0.0 if lease is None else lease.time_s,
        lease_stale=is_stale(lease, now_s),
        watchdog_time_s=checked_s,
        watchdog_silent=needs_watchdog and is_silent(checked_s, now_s, uptime_s),
        preemptions_open=len(under_way),
        troubles=controller.tasks.troubles,
        preemptions_started=sum(row.stage is Stage.STARTED for row in under_way),
        preemption_budget=controller.settings.preemption_budget_per_hour,
        preemption_budget_left=budget.left,
        left_out=[admin_pb2.LeftOut(part=part, errors=errors) for part, errors in sorted(LEFT_OUT.counts().items())],
    )


def slurm_calls(counts: Iterable[CallCount]) -> Iterator[admin_pb2.SlurmCalls]:
    """Yield the calls to Slurm by verb."""
    for one in counts:
        yield admin_pb2.SlurmCalls(verb=one.verb, calls=one.calls, mean_s=one.total_s / one.calls, failed=one.failed)


def agents_status(measurement: Measurement | None, names: Iterable[str], now_s: float) -> admin_pb2.AgentsStatus:
    """Return which of those nodes have a connected agent."""
    if measurement is None:
        return admin_pb2.AgentsStatus()
    agents = measurement.agents
    message = admin_pb2.AgentsStatus(served=True, reports=agents.reports, refused=sum(agents.refused.values()))
    known = agents.nodes
    for name in sorted(names):
        message.nodes += 1
        node = known.get(name)
        if node is None or not node.connected:
            message.silent.add(name=name, since_s=0.0 if node is None else node.since_s)
            continue
        message.connected += 1
        message.dropped += node.dropped
        if abs(node.clock_behind_s) > SKEW_S:
            message.skewed.add(name=name, behind_s=node.clock_behind_s)
        message.troubles.extend(f"on {name}, {text}" for text in _troubles(node, now_s))
    return message


def _troubles(node: NodeStatus, now_s: float) -> Iterator[str]:
    """Yield a sentence for each background task of that agent that failed within the last hour. The text is the agent's claim."""
    for failed in () if node.telemetry is None else node.telemetry.failed_tasks:
        if abs(now_s - failed.last_s) <= TROUBLE_S:
            yield str(
                TaskFailure(clip(failed.task), failed.failures, failed.in_a_row, failed.last_s, clip(failed.problem))
            )


def cluster(view: CycleView, rack_of: Callable[[str], str]) -> admin_pb2.Status:
    """Return the part of a status about jobs and nodes, and the time of the decision. `rack_of` returns the rack of a node."""
    decided = view.result.decided
    message = admin_pb2.Status(decision_s=0.0 if decided is None else decided.latency_s)
    for _, found in view.jobs():
        match found.role:
            case Role.WAITING:
                message.jobs_waiting += 1
            case Role.STARTING:
                message.jobs_starting += 1
            case Role.RUNNING:
                message.jobs_running += 1
            case Role.INELIGIBLE:
                message.jobs_ineligible += 1
            case _:
                message.jobs_yielded += 1
    shown = {node.name: node for node in view.result.observation.snapshot.nodes}
    nodes = view.state.nodes
    rows = zip(
        nodes.names, nodes.gpus.tolist(), view.free_capacity.used_gpus.tolist(), nodes.available.tolist(), strict=True
    )
    place = {
        name: number for number, name in enumerate(shown)
    }  # policies see nodes that sleep last; users read Slurm's order
    for name, gpus, used, available in sorted(rows, key=lambda row: place.get(row[0], len(place))):
        node = shown.get(name)
        usable = available and (node is None or node.is_usable)
        row = message.nodes.add(name=name, gpus=gpus, gpus_used=used, available=usable)
        with apart("nodes of the status", name):
            row.rack = rack_of(name)
            if node is not None:
                row.state, row.reason = node.state, node.reason
                row.partitions.extend(sorted(node.partitions & view.partitions))
        message.gpus_total += gpus
        message.gpus_used += used
        message.nodes_available += usable
        message.nodes_total += 1
    return message


def queue_entries(
    view: CycleView, now_s: float, starts: Starts = no_starts, steps_done: StepsDone | None = None
) -> Iterator[admin_pb2.QueueEntry]:
    """Yield every managed job that has not ended: waiting jobs in the policy's order, the others by time of submission."""
    last = len(view.rows) + 1
    lines: list[tuple[tuple[float, ...], SlurmJob, Standing]] = []
    for job, found in view.jobs():
        shown = replace(found, role=Role.YIELDED) if found.role is Role.ADOPT else found
        row = view.rows.get(job.key, last)
        position = view.positions.get(row, last) if shown.role is Role.WAITING else 0
        order: tuple[float, ...] = (len(SHOWN),)
        with apart("the queue", job.key.job_id):
            order = (SHOWN.index(shown.role), position, view.first_submit_s(job), row)
        lines.append((order, job, shown))
    lines.sort(key=lambda line: line[0])
    for _, job, shown in lines:
        try:
            entry = _entry(view, job, shown, now_s)
            if shown.role is Role.WAITING and (estimate := starts(job.key)) is not None:
                entry.start.CopyFrom(_start(estimate))
            if shown.role is Role.RUNNING and steps_done is not None and (done := steps_done(job)) is not None:
                entry.steps = done
        except Exception as error:  # noqa: BLE001 - one job must not hide all others
            LEFT_OUT.note("the queue", job.key.job_id, error)
            entry = _bare_entry(job, shown, error)
        yield entry


def _bare_entry(job: SlurmJob, shown: Standing, error: Exception) -> admin_pb2.QueueEntry:
    """Return the entry of a job that leads to an error of ours."""
    return admin_pb2.QueueEntry(
        job_id=job.key.job_id,
        user=clip(job.user),
        state=state_word(shown.role),
        why=f"cannot be shown: it {not_understood(error)}",
    )


def _entry(view: CycleView, job: SlurmJob, shown: Standing, now_s: float) -> admin_pb2.QueueEntry:
    entry = admin_pb2.QueueEntry(
        job_id=job.key.job_id,
        user=job.user,
        name=job.name,
        partition=job.partition,
        state=state_word(shown.role),
        num_gpus=view.num_gpus(job),
        submit_time_s=view.first_submit_s(job),
        wait_s=view.wait_s(job, now_s),
        placement=view.placement(job),
        why=brief(view, job, shown, now_s),
        waits_for=reason_of(shown),
    )
    if (in_all := read_user_options(job.comment).steps) is not None:
        entry.steps_in_all = in_all
    if shown.role is Role.RUNNING and (found := view.contention(job)) is not None:
        entry.idle_gpus = found.window.idle_gpus
        entry.beside.extend(view.beside(found))
        if found.sensitivity is not None:
            entry.slowdown, entry.slowdown_confidence = found.value, found.confidence
    return entry


def add_steps(answer: admin_pb2.Explanation, job: SlurmJob, done: int, steps_per_s: float | None) -> None:
    """Add the steps that a running job has made: as a sentence, and as numbers."""
    in_all = read_user_options(job.comment).steps
    answer.sentence += f" {steps_sentence(done, in_all, steps_per_s)}"
    answer.facts["steps"] = str(done)
    if in_all is not None:
        answer.facts["steps_in_all"] = str(in_all)


def _start(estimate: StartEstimate) -> admin_pb2.StartEstimate:
    return admin_pb2.StartEstimate(**asdict(estimate))


def add_start(answer: admin_pb2.Explanation, found: StartEstimate, now_s: float) -> None:
    """Add the estimate of a waiting job's start: as a sentence, and as numbers."""
    sentence = start_sentence(found.earliest_s, found.latest_s, found.held, found.known, found.stand_in, now_s)
    answer.sentence += f" {sentence}"
    answer.start.CopyFrom(_start(found))


def decision_records(placed: Iterable[PlacedEntry]) -> list[admin_pb2.DecisionRecord]:
    """Return the decisions on a job, in the journal's order."""
    return [
        admin_pb2.DecisionRecord(
            time_s=entry.decision.time_s,
            sequence=entry.decision.sequence,
            snapshot_digest=entry.decision.digest,
            policy=entry.decision.policy,
            placement=entry.placement,
            reason=entry.reason,
        )
        for entry in placed
    ]


def explanation(found: Explained, decisions: list[admin_pb2.DecisionRecord], caution: str) -> admin_pb2.Explanation:
    """Return the answer to the call Why."""
    return admin_pb2.Explanation(
        job_id=found.job_id,
        state=found.state,
        sentence=found.sentence + caution,
        facts=found.facts,
        decisions=decisions,
    )
