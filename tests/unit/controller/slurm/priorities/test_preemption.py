"""Slurm's rules of preemption: which job may be stopped for which, when, how, and in which order."""

from __future__ import annotations

import pytest

from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.shares import QosPreemption, Shares
from controller.slurm.priorities.preemption import PreemptionRules, StopMode, holds_nodes
from tests.unit.controller.examples.build import NOW_S, job, running

QOS = {
    "high": QosPreemption(frozenset({"low", "brief"})),
    "low": QosPreemption(exempt_s=200.0),
    "brief": QosPreemption(mode="CANCEL", grace_s=5.0),
    "never": QosPreemption(mode="OFF"),
    "asleep": QosPreemption(mode="SUSPEND"),
}
SHARES = Shares(qos={"high": 100, "low": 0, "brief": 10}, preemption=QOS)
BY_QOS = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "PreemptExemptTime": "00:00:30", "KillWait": "5 sec"}
BY_TIER = {"PreemptType": "preempt/partition_prio", "PreemptMode": "GANG,SUSPEND"}
PARTITIONS = {
    one.name: one
    for one in (
        SlurmPartition("dl", frozenset(), True, None, 10, 1, "REQUEUE"),
        SlurmPartition("low", frozenset(), True, None, 1, 1, "CANCEL", 7.0),
        SlurmPartition("never", frozenset(), True, None, 1, 1, "OFF"),
        SlurmPartition("asleep", frozenset(), True, None, 1, 1, "GANG,SUSPEND"),
    )
}


def rules(settings: dict[str, str]) -> PreemptionRules:
    found = PreemptionRules.of(settings, SHARES)
    assert found is not None
    return found


def on_n1(**changes: object) -> SlurmJob:
    return running("9", on={"n1": 8}, **changes)


def test_without_a_type_of_preemption_there_are_no_rules() -> None:
    assert PreemptionRules.of({}, SHARES) is None
    assert PreemptionRules.of({"PreemptType": "preempt/none"}, SHARES) is None


def test_a_qos_preempts_those_that_it_names_and_no_other() -> None:
    found = rules(BY_QOS)
    assert found.may_stop(job(qos="high"), on_n1(qos="low"), PARTITIONS)
    assert not found.may_stop(job(qos="low"), on_n1(qos="high"), PARTITIONS)
    assert not found.may_stop(job(qos="high"), on_n1(qos="high"), PARTITIONS)
    assert not found.may_stop(job(qos="unknown"), on_n1(qos="low"), PARTITIONS)


def test_a_partition_preempts_those_of_a_lower_tier() -> None:
    found = rules(BY_TIER)
    assert found.may_stop(job(partition="dl"), on_n1(partition="low"), PARTITIONS)
    assert not found.may_stop(job(partition="dl"), on_n1(partition="dl"), PARTITIONS)
    assert not found.may_stop(job(partition="dl,low"), on_n1(partition="low"), PARTITIONS), "it may start in low"


@pytest.mark.parametrize(
    ("settings", "stopped", "mode"),
    [
        (BY_QOS, {"qos": "low"}, StopMode.REQUEUE),
        (BY_QOS, {"qos": "low", "requeue": False}, StopMode.CANCEL),
        (BY_QOS, {"qos": "low", "batch": False}, StopMode.CANCEL),
        (BY_QOS, {"qos": "brief"}, StopMode.CANCEL),
        (BY_QOS, {"qos": "never"}, None),
        (BY_QOS, {"qos": "asleep"}, None),
        (BY_QOS | {"PreemptMode": "OFF"}, {"qos": "low"}, None),
        (BY_TIER, {"partition": "dl"}, StopMode.REQUEUE),
        (BY_TIER, {"partition": "low"}, StopMode.CANCEL),
        (BY_TIER, {"partition": "never"}, None),
        (BY_TIER, {"partition": "asleep"}, None),
    ],
)
def test_the_mode_is_that_of_the_qos_or_the_partition_and_a_suspended_job_frees_no_gpus(
    settings: dict[str, str], stopped: dict[str, object], mode: StopMode | None
) -> None:
    assert rules(settings).stop_mode(on_n1(**stopped), PARTITIONS) is mode


def test_a_job_is_exempt_for_the_time_of_its_qos_or_of_the_cluster() -> None:
    found = rules(BY_QOS)
    assert found.exempt_until_s(on_n1(qos="low", since=NOW_S)) == NOW_S + 200
    assert found.exempt_until_s(on_n1(qos="brief", since=NOW_S)) == NOW_S + 30
    assert rules(BY_QOS | {"PreemptExemptTime": "-1"}).exempt_until_s(on_n1(qos="brief", since=NOW_S)) == NOW_S


def test_grace_and_the_time_to_end_processes() -> None:
    found = rules(BY_QOS)
    assert (found.grace_s(on_n1(qos="brief"), PARTITIONS), found.kill_s) == (5.0, 5.0)
    assert rules(BY_TIER).grace_s(on_n1(partition="low"), PARTITIONS) == 7.0


def test_the_lowest_qos_is_stopped_first_then_small_jobs_or_young_ones() -> None:
    jobs = [
        running("1", on={"n1": 8}, qos="brief"),
        running("2", on={"n1": 8, "n2": 8}, qos="low", since=NOW_S - 5),
        running("3", on={"n3": 8}, qos="low", since=NOW_S - 50),
    ]

    def order(settings: dict[str, str]) -> list[str]:
        return [one.key.job_id for one in sorted(jobs, key=lambda one: rules(settings).order(one, PARTITIONS))]

    assert order(BY_QOS) == ["3", "2", "1"]
    assert order(BY_QOS | {"PreemptParameters": "reclaim_licenses,youngest_first"}) == ["2", "3", "1"]


def test_only_jobs_that_run_or_are_suspended_are_considered() -> None:
    assert holds_nodes(on_n1())
    assert holds_nodes(on_n1(phase=Phase.SUSPENDED))
    assert not holds_nodes(on_n1(phase=Phase.COMPLETING))
    assert not holds_nodes(job())


def test_the_rule_as_text() -> None:
    assert rules(BY_QOS).because(job(qos="high"), [on_n1(qos="low"), on_n1(qos="brief")]) == (
        "QOS high preempts brief and low"
    )
    assert "partition dl has a higher PriorityTier than low" in rules(BY_TIER).because(job(), [on_n1(partition="low")])
