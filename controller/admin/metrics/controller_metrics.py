"""Metrics of decisions, of the queue and of the controller's health.

Labels are bounded: roles, kinds and the one current policy; never jobs, users or nodes. job_metrics has those of single jobs.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from controller.admin.explain.wait_reason import REASONS, reason_of
from controller.admin.metrics.current_view import CurrentView
from controller.admin.metrics.families import counter, counters, families_of, gauge, gauges
from controller.admin.metrics.learning_metrics import learning_metrics
from controller.admin.metrics.metered_client import LATENCY_S
from controller.base.apart import each
from controller.base.lease import read_lease
from controller.base.watchdog_mark import last_check_s
from controller.cycle.view.controller_view import ControllerView
from controller.cycle.view.result import CycleResult
from controller.observe.role import Role, Standing
from controller.slurm.model.job import SlurmJob
from controller.state.decided_by import DecidedBy
from policies.serving.runtime.version import VERSION

_OFTEN = 3
_KINDS = ("policy", "fallback", "none")
_ROLES = (Role.WAITING, Role.STARTING, Role.RUNNING, Role.INELIGIBLE, Role.YIELDED, Role.ADOPT)


class ControllerMetrics(Collector):
    """Counts decisions at the end of each cycle, and reads everything else from the controller at each scrape."""

    def __init__(self, controller: ControllerView, registry: CollectorRegistry, current: CurrentView) -> None:
        self._controller = controller
        self._current = current
        self._latency = Histogram(
            "headway_decision_seconds", "Time from a snapshot to a checked plan", ["decider"], registry=registry,
            buckets=LATENCY_S,
        )  # fmt: skip
        self._decisions = Counter(
            "headway_decisions", "Decisions by their maker: policy, fallback, or none", ["decider"], registry=registry
        )
        self._started = Counter("headway_jobs_placed", "Jobs placed by decisions", registry=registry)
        for kind in _KINDS:
            self._decisions.labels(kind)
        registry.register(self)

    def on_cycle(self, result: CycleResult) -> None:
        """Count one good cycle."""
        decided = result.decided
        if decided is None:
            if len(result.observation.state.pending):
                self._decisions.labels("none").inc()
            return
        kind = "fallback" if DecidedBy.parse(decided.policy).fallback else "policy"
        self._decisions.labels(kind).inc()
        self._latency.labels(kind).observe(max(decided.latency_s, 0.0))
        self._started.inc(len(decided.plan.starts))

    def collect(self) -> Iterable[Metric]:
        """Return the values at the time of the scrape. Runs in the exporter's thread, and changes nothing."""
        return families_of(
            self._of_decider, self._of_policy, self._of_cycles, self._of_tasks, self._of_lease, self._of_watchdog,
            self._of_jobs, self._of_waits, self._of_refusals, self._of_nodes,
        )  # fmt: skip

    def _of_decider(self) -> Iterator[Metric]:
        decider = self._controller.decider
        yield counter(
            "headway_policy_rejects", "Decisions of the policy server that were rejected", decider.counts.rejects
        )
        yield counter(
            "headway_policy_guarded", "Decisions of a rule in a learned policy's place", decider.counts.guarded
        )
        yield counter(
            "headway_policy_outcomes_lost",
            "Ends of jobs that no policy server has received, and none will",
            decider.counts.lost_outcomes,
        )
        yield gauge(
            "headway_policy_outside_trained_range",
            "1 while the state is outside of the range that the policy's weights were trained on",
            bool(decider.outside),
        )
        yield gauge(
            "headway_policy_serving", "1 while the policy server decides, 0 while the fallback does", decider.serving
        )

    def _of_policy(self) -> Iterator[Metric]:
        decider = self._controller.decider
        if decider.spec is not None and decider.spec.learning is not None:
            yield from learning_metrics(decider.spec.learning)
        info = InfoMetricFamily("headway_build", "Version of the controller")
        info.add_metric([], {"version": VERSION})
        yield info

    def _of_cycles(self) -> Iterator[Metric]:
        health = self._controller.health
        yield gauge("headway_snapshot_read_seconds", "Time that the last reading of Slurm took", health.read_s)
        yield gauge(
            "headway_snapshot_to_plan_seconds", "Time from the last snapshot to its checked plan", health.plan_s
        )
        yield gauge("headway_last_cycle_timestamp_seconds", "End of the last good cycle, Unix time", health.last_good_s)
        yield gauge("headway_start_timestamp_seconds", "Start of the controller, Unix time", health.started_s)
        yield counter("headway_cycles", "Good cycles", health.cycles)
        yield counter("headway_cycle_failures", "Cycles that failed", health.failures)
        yield gauge(
            "headway_journal_writable",
            "0 from a failure of the journal until it can be written again",
            self._controller.journal.is_well,
        )

    def _of_tasks(self) -> Iterator[Metric]:
        failures = self._controller.tasks.failures
        yield counters("headway_task_failures", "Failures of background tasks, which are begun again", "task", failures)
        yield gauges(
            "headway_task_last_failure_timestamp_seconds",
            "Newest failure of each background task, Unix time",
            "task",
            {each.task: each.time_s for each in tuple(self._controller.tasks.last.values())},
        )

    def _of_lease(self) -> Iterator[Metric]:
        settings = self._controller.settings
        lease = read_lease(settings.lease_path)
        if lease is not None:
            yield gauge(
                "headway_lease_age_seconds", "Age of the lease that Slurm's plugin reads", time.time() - lease.time_s
            )
        yield gauge("headway_lease_stale_after_seconds", "Age above which the lease is stale", settings.stale_after_s)

    def _of_watchdog(self) -> Iterator[Metric]:
        settings = self._controller.settings
        if settings.slurm_client != "embedded":  # an emulated Slurm needs no watchdog
            yield gauge(
                "headway_watchdog_last_check_timestamp_seconds",
                "Begin of the watchdog's last check, Unix time; 0: none is known",
                last_check_s(settings.runtime_dir),
            )

    def _standings(self) -> list[tuple[SlurmJob, Standing]] | None:
        """Return the jobs with their roles; None before the first good cycle."""
        view = self._current.get()
        return None if view is None else list(view.jobs())

    def _of_jobs(self) -> Iterator[Metric]:
        standings = self._standings()
        if standings is None:
            return
        tally = Tally(found.role for _, found in standings)
        jobs = GaugeMetricFamily("headway_jobs", "Managed jobs by their role", labels=["role"])
        for role in _ROLES:
            jobs.add_metric([str(role.value)], tally[role])
        yield jobs
        reasons = Tally(each("/metrics", (found for _, found in standings), reason_of))
        yield gauges(
            "headway_jobs_waiting",
            "Managed jobs that wait, by what they wait for",
            "reason",
            {reason: reasons[reason] for reason in REASONS},
        )

    def _of_waits(self) -> Iterator[Metric]:
        view, now_s = self._current.get(), self._controller.clock.now()
        if view is None:
            return
        waiting = [job for job, found in view.jobs() if found.role is Role.WAITING]
        waits = each("/metrics", waiting, lambda job: view.wait_s(job, now_s), lambda job: job.key.job_id)
        yield gauge("headway_longest_wait_seconds", "Longest wait of a job that waits now", max(waits, default=0.0))

    def _of_refusals(self) -> Iterator[Metric]:
        if self._current.get() is None:
            return
        # A copy, because the event loop changes them meanwhile.
        refusals = list(self._controller.ledger.refusals.values())
        often = sum(refusal.count >= _OFTEN for refusal in refusals)
        yield gauge("headway_jobs_refused_often", f"Jobs that Slurm has refused {_OFTEN} times or more", often)

    def _of_nodes(self) -> Iterator[Metric]:
        view = self._current.get()
        if view is None:
            return
        nodes = view.state.nodes
        yield gauge("headway_gpus_used", "GPUs in use on managed nodes", int(view.free_capacity.used_gpus.sum()))
        yield gauge("headway_gpus_total", "GPUs of managed nodes", int(nodes.gpus.sum()))
        usable = {node.name for node in view.result.observation.snapshot.nodes if node.is_usable}
        available = sum(name in usable for name, may in zip(nodes.names, nodes.available.tolist(), strict=True) if may)
        yield gauge("headway_nodes_available", "Managed nodes that may start jobs of users", available)
        yield gauge("headway_nodes_total", "Managed nodes", len(nodes))
