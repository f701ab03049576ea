"""Metrics of a policy that goes on training while it serves; they are absent for all others."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from controller.admin.metrics.families import counter, gauge
from policies.api import LearningStatus

_RESULTS = ("promoted", "not better", "failed", "stopped")


def learning_metrics(status: LearningStatus) -> Iterator[Metric]:
    """Return the state of the policy's learning, as it described it last."""
    weights = InfoMetricFamily("headway_policy_weights", "Digest of the weights in service")
    weights.add_metric([], {"sha256": status.weights_sha256})
    yield weights
    yield gauge(
        "headway_policy_weights_timestamp_seconds",
        "Promotion of the weights in service, Unix time; 0: those that the policy began with",
        status.weights_since_s,
    )
    yield gauge("headway_policy_history_jobs", "Jobs in the history that the policy learns from", status.history_jobs)
    yield gauge("headway_policy_history_bytes", "Size of that history", status.history_bytes)
    yield counter("headway_policy_outcomes_refused", "Outcomes that were not recorded", status.outcomes_refused)
    yield gauge("headway_policy_feedback_samples", "Samples of live decisions with rewards", status.feedback_samples)
    yield counter("headway_policy_feedback_updates", "Gradient steps from these samples", status.feedback_updates)
    yield counter("headway_policy_feedback_left_out", "Live decisions of unknown reward", status.feedback_left_out)
    yield counter("headway_policy_learning_attempts", "Attempts to make better weights", status.attempts)
    yield counter("headway_policy_promotions", "Attempts whose weights were promoted", status.promotions)
    yield gauge("headway_policy_training", "1 while an attempt is under way", status.training)
    yield gauge("headway_policy_learning_problem", "1 while nothing is recorded or learned", bool(status.problem))
    yield gauge(
        "headway_policy_learning_last_attempt_timestamp_seconds",
        "End of the last attempt, Unix time",
        status.last_attempt_s,
    )
    result = GaugeMetricFamily(
        "headway_policy_learning_last_result", "1 for the last attempt's result", labels=["result"]
    )
    for each in _RESULTS:
        result.add_metric([each], float(each == status.last_result))
    yield result
    if status.change is not None and status.ci95 is not None:
        yield gauge("headway_policy_learning_change", "Relative change of the average JCT in it", status.change)
        yield gauge("headway_policy_learning_change_ci95", "Half of its 95 % interval", status.ci95)
