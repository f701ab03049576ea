"""Jobs that a refusal for a limit concerns beside the refused one."""

import pytest

from controller.cycle import limit_backoff
from controller.cycle.limit_backoff import jobs_of_same_limit, may_unblock
from controller.observe.observer import Observer
from controller.state.ledger import Ledger, PinRecord
from tests.unit.controller.examples.build import NOW_S, job, request, snapshot


def spared(reason, refused, *others):
    """Ids of the waiting jobs that are not tried when that one is refused."""
    refused = job("1", held=False, reason=reason, **refused)
    ledger = Ledger(pins={refused.key: PinRecord(("n1",), (2,), 0, NOW_S - 1, "fifo", "")})
    waiting = [job(str(10 + number), **changes) for number, changes in enumerate(others)]
    observation = Observer().observe(snapshot(refused, *waiting), ledger, frozenset({"dl"}))
    return [key.job_id for key in jobs_of_same_limit(observation, [refused.key], ledger)]


def refused_alike(*refused, others):
    """Waiting job → job refused with it, by id; the refused ones have the ids 1, 2, ..., the others 1001, 1002, ..."""
    refused = [job(str(1 + number), held=False, reason="AssocGrpGRES", **one) for number, one in enumerate(refused)]
    ledger = Ledger(pins={one.key: PinRecord(("n1",), (2,), 0, NOW_S - 1, "fifo", "") for one in refused})
    waiting = [job(str(1001 + number), **changes) for number, changes in enumerate(others)]
    observation = Observer().observe(snapshot(*refused, *waiting), ledger, frozenset({"dl"}))
    found = jobs_of_same_limit(observation, [one.key for one in refused], ledger)
    return {key.job_id: like.job_id for key, like in found.items()}


def gpus(count, **more):
    return {"request": request(gpus_per_node=count, **more)}


@pytest.mark.parametrize(
    ("other", "concerned"),
    [
        (gpus(2), True),
        (gpus(4), True),
        (gpus(1), False),
        (gpus(2, memory_mib_per_node=5), True),
        ({"request": request(gpus_per_job=3)}, True),
        ({"request": request(gpus_per_task=1, num_tasks=2, num_cpus=2)}, True),
        (gpus(2) | {"user": "bob"}, False),
        (gpus(2) | {"account": "other"}, False),
        (gpus(2) | {"qos": "high"}, False),
        (gpus(2) | {"time_limit_s": 60.0}, True),
    ],
)
def test_a_limit_on_gpus_concerns_jobs_of_the_same_association_with_equal_or_larger_requests(other, concerned):
    assert spared("AssocGrpGRES", gpus(2), other) == (["10"] if concerned else [])


@pytest.mark.parametrize(
    ("reason", "other", "concerned"),
    [
        ("QOSMaxJobsPerUserLimit", gpus(2), True),
        ("QOSMinGRES", gpus(4), False),
        ("AssocGrpMemLimit", gpus(2), True),
        ("AssocGrpMemLimit", gpus(2, memory_mib_per_node=5), False),
        ("AssocGrpGRESMinutes", gpus(2) | {"time_limit_s": 60.0}, False),
        ("AssocGrpGRESMinutes", gpus(2) | {"time_limit_s": None}, True),
        ("QOSMaxWallDurationPerJobLimit", gpus(2) | {"time_limit_s": 60.0}, False),
        ("PartitionTimeLimit", gpus(2), False),
        ("ReqNodeNotAvail", gpus(2), False),
    ],
)
def test_only_the_resource_of_the_limit_is_compared(reason, other, concerned):
    assert spared(reason, gpus(2), other) == (["10"] if concerned else [])


def test_a_license_concerns_jobs_of_every_user():
    one = gpus(4) | {"licenses": "sim:1"}
    others = (gpus(1) | {"licenses": "sim:1", "user": "bob"}, gpus(4) | {"licenses": "cad:1"}, gpus(4))
    assert spared("Licenses", one, *others) == ["10"]


def test_tasks_of_an_array_that_runs_as_many_as_it_may_are_not_tried():
    others = ({"array_job_id": 7}, {"array_job_id": 8}, {})
    assert spared("JobArrayTaskLimit", {"array_job_id": 7}, *others) == ["10"]


def test_of_several_refused_jobs_each_that_asks_for_less_of_something_counts():
    many_gpus, many_nodes = gpus(4), gpus(1, min_nodes=2, max_nodes=2)
    larger = gpus(8, min_nodes=2, max_nodes=2)
    others = (gpus(4), many_nodes, gpus(1), gpus(5))
    assert refused_alike(larger, many_gpus, many_nodes, others=others) == {"1001": "2", "1002": "3", "1004": "2"}


def test_each_request_is_read_once_however_many_jobs_are_refused(monkeypatch):
    read = []
    request_now = limit_backoff.request_now
    monkeypatch.setattr(
        limit_backoff, "request_now", lambda one, ledger: read.append(one.key) or request_now(one, ledger)
    )
    refused = [gpus(2 + number % 3, num_cpus=1 + number % 2) for number in range(60)]
    assert refused_alike(*refused, others=[gpus(1)] * 50) == {}
    assert len(read) == 60 + 50


@pytest.mark.parametrize(
    ("ended", "reason", "concerned"),
    [
        ({}, "QOSMaxGRESPerUser", True),
        ({"user": "bob"}, "QOSMaxGRESPerUser", False),
        ({"user": "bob"}, "AssocGrpGRES", True),
        ({"user": "bob", "account": "other"}, "AssocGrpGRES", False),
        ({"user": "bob"}, "QOSGrpGRES", True),
        ({"user": "bob", "qos": "high"}, "QOSGrpGRES", False),
        ({"user": "bob", "licenses": "sim:1"}, "Licenses", True),
        ({"user": "bob"}, "Licenses", False),
        ({"user": "bob"}, "", False),
        ({"user": "bob"}, "could not be released: AssocGrpGRES", False),
        ({"user": "bob"}, "Resources,AssocGrpGRES", True),
    ],
)
def test_jobs_whose_end_a_refused_job_waits_for(ended, reason, concerned):
    assert may_unblock(job("2", **ended), job("1"), reason) is concerned
