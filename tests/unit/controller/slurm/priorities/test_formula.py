"""Priorities by the multifactor formula, against the figures that sprio of Slurm 22.05.8 printed for the same jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from controller.base.errors import SlurmReplyError
from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.shares import Shares
from controller.slurm.priorities.formula import Owner, Requests, multifactor
from controller.slurm.priorities.weights import PriorityWeights, weights_of
from tests.unit.controller.examples.build import node, snapshot

CONFIG = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "1000",
    "PriorityWeightFairShare": "100000",
    "PriorityWeightJobSize": "2000",
    "PriorityWeightPartition": "3000",
    "PriorityWeightQOS": "40000",
    "PriorityWeightTRES": "CPU=500,Mem=700,GRES/gpu=9000",
    "PriorityMaxAge": "01:00:00",
    "PriorityFavorSmall": "No",
    "PriorityFlags": "",
}
WEIGHTS = PriorityWeights(
    1000.0, 100000.0, 2000.0, 3000.0, 40000.0, {"cpu": 500.0, "mem": 700.0, "gres/gpu": 9000.0}, 3600.0
)
SHARES = Shares({("lab", "ann", ""): 0.25, ("lab", "bob", ""): 0.75}, {"normal": 0, "urgent": 50, "low": 10})
NODES = tuple(node(f"n{i}", gpus=4, memory_mib=256_000, partitions=frozenset({"dl", "hi"})) for i in (1, 2))
CLUSTER = snapshot(
    nodes=NODES,
    partitions=(
        SlurmPartition("dl", frozenset({"n1", "n2"}), True, None, 1, 10),
        SlurmPartition("hi", frozenset({"n1", "n2"}), True, None, 5, 40),
    ),
)
NOBODY: Owner = ("eve", "", "normal", "dl")


def priority(
    owner: Owner = NOBODY, *, weights: PriorityWeights = WEIGHTS, shares: Shares = SHARES, **job: float
) -> float:
    """Return the priority of a job that asks for one GPU, one CPU and 1,000 MiB, but for `job`."""
    wants = {
        "cpu": 1.0,
        "mem": 1000.0,
        "node": 1.0,
        "gpu": 1.0,
        "age_s": 0.0,
        "nice": 0.0,
        "time_limit_s": np.nan,
    } | job
    one = {name: np.array([value]) for name, value in wants.items()}
    requests = Requests(
        owners=[owner],
        resources={"cpu": one["cpu"], "mem": one["mem"], "node": one["node"], "gres/gpu": one["gpu"]},
        age_s=one["age_s"],
        nice=one["nice"],
        time_limit_s=one["time_limit_s"],
        whole_nodes=np.array([bool(job.get("whole_nodes"))]),
    )
    (found,) = multifactor(requests, weights, shares, CLUSTER).tolist()
    return float(found)


def test_the_settings_are_read_as_scontrol_prints_them() -> None:
    assert weights_of(CONFIG) == WEIGHTS
    assert weights_of(CONFIG | {"PriorityType": "priority/basic"}) is None
    small = weights_of(CONFIG | {"PriorityFavorSmall": "Yes", "PriorityFlags": "NO_NORMAL_QOS,NO_FAIR_TREE"})
    assert small is not None
    assert (small.favor_small, small.flags) == (True, {"NO_NORMAL_QOS", "NO_FAIR_TREE"})
    with pytest.raises(SlurmReplyError, match="PriorityWeightQOS is not a number: 'many'"):
        weights_of(CONFIG | {"PriorityWeightQOS": "many"})


@pytest.mark.parametrize(
    ("owner", "job", "expected"),
    [
        (NOBODY, {}, 2388),
        (NOBODY, {"gpu": 8.0, "node": 2.0, "cpu": 2.0, "mem": 2000.0, "nice": 500.0}, 10276),
        (("eve", "", "urgent", "hi"), {"gpu": 2.0, "cpu": 3.0, "mem": 4096.0}, 45790),
        (("eve", "", "low", "dl"), {"gpu": 3.0, "cpu": 5.0, "mem": 10240.0}, 12697),
        (NOBODY, {"gpu": 2.0}, 3513),
        (("bob", "lab", "normal", "dl"), {}, 77388),
        (("ann", "lab", "normal", "dl"), {"age_s": 324.0}, 27478),
    ],
    ids=["plain", "large and nice", "urgent in hi", "low", "two GPUs", "a fair share", "older"],
)
def test_it_is_what_slurm_computes(owner: Owner, job: dict[str, float], expected: int) -> None:
    assert priority(owner, **job) == expected


def test_of_several_partitions_the_best_counts_and_an_own_share_goes_before_the_general_one() -> None:
    assert priority(("eve", "", "normal", "dl,hi")) == priority(("eve", "", "normal", "hi")) == 2388 + 2250
    shares = replace(SHARES, fair_share={("lab", "ann", ""): 0.25, ("lab", "ann", "hi"): 0.5})
    assert priority(("ann", "lab", "normal", "hi"), shares=shares) == 2388 + 2250 + 50000


def test_without_a_maximum_no_age_counts() -> None:
    unlimited = weights_of(CONFIG | {"PriorityMaxAge": "UNLIMITED"})
    assert unlimited is not None
    assert priority(weights=unlimited, age_s=86400.0) == 2388


def test_age_ends_at_its_maximum_and_a_priority_is_never_0() -> None:
    assert priority(age_s=7200.0) == priority(age_s=3600.0) == 3388
    assert priority(age_s=-50.0) == 2388, "a node's clock may be ahead"
    assert priority(nice=1e6) == 1.0, "0 would mean that the job is held"


@pytest.mark.parametrize(
    ("changes", "job", "expected"),
    [
        ({"favor_small": True}, {}, 1492.1875),
        ({"favor_small": True}, {"node": 2.0, "cpu": 128.0}, 0.0),
        ({"flags": frozenset({"SMALL_RELATIVE_TO_TIME"})}, {"time_limit_s": 600.0}, 100.0),
        ({"flags": frozenset({"SMALL_RELATIVE_TO_TIME"})}, {}, 0.0),
        ({}, {"node": 2.0, "whole_nodes": 1.0}, 2000.0),
    ],
    ids=["small", "all of the cluster", "by time", "without a time limit", "whole nodes"],
)
def test_the_size_of_a_job(changes: dict[str, Any], job: dict[str, float], expected: float) -> None:
    weights = PriorityWeights(job_size=2000.0, **changes)
    assert priority(weights=weights, **job) == max(np.floor(expected), 1.0)


def test_associations_count_by_their_priority_against_the_highest() -> None:
    table = {("lab", "", ""): 20, ("lab", "ann", ""): 5, ("lab", "ann", "hi"): 10}
    shares, weights = Shares(association=table), PriorityWeights(association=1000.0)
    partitions = ("dl", "hi", "dl,hi")
    found = [priority(("ann", "lab", "normal", names), weights=weights, shares=shares) for names in partitions]
    assert found == [250, 500, 500]
    assert priority(("bob", "lab", "normal", "dl"), weights=weights, shares=shares) == 1
    whole = replace(weights, association=7.0, flags=frozenset({"NO_NORMAL_ASSOC"}))
    assert priority(("ann", "lab", "normal", "dl"), weights=whole, shares=shares) == 35
    read = weights_of(CONFIG | {"PriorityWeightAssoc": "70"})
    assert read == replace(WEIGHTS, association=70.0)


def test_flags_keep_numbers_as_they_are() -> None:
    flags = frozenset({"NO_NORMAL_QOS", "NO_NORMAL_PART", "NO_NORMAL_TRES"})
    weights = PriorityWeights(partition=2.0, qos=3.0, tres={"gres/gpu": 5.0, "energy": 9.0}, flags=flags)
    assert priority(("eve", "", "urgent", "hi"), weights=weights, gpu=4.0) == 2 * 40 + 3 * 50 + 5 * 4


def test_without_accounting_only_the_other_factors_count() -> None:
    assert priority(("ann", "lab", "urgent", "dl"), shares=Shares()) == 2388
