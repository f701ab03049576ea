"""Numbers that no cluster has, in the texts of Slurm: the state that policies get is valid, or the text is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.base.errors import SlurmReplyError
from controller.observe.observer import Observer
from controller.slurm.model.job import NodeShare, SlurmJob
from controller.slurm.priorities.weights import weights_of
from controller.slurm.scontrol.parse import parse_job
from controller.slurm.scontrol.parse_nodes import parse_node, parse_partition
from controller.slurm.scontrol.values import duration_s
from controller.state.ledger import Ledger
from policies.model import ClusterState
from policies.wire.messages import parse_state, serialize_state, state_digest
from tests.unit.controller.examples.build import job, request, running, snapshot
from tests.unit.controller.slurm.scontrol.text import CLOCK, RUNNING, job_line, node_line


def arrived(*jobs: SlurmJob) -> ClusterState:
    """Return the state as a policy server reads it."""
    state = Observer().observe(snapshot(*jobs), Ledger(), frozenset({"dl"})).state
    return parse_state(serialize_state(state))


def test_a_running_job_that_asks_for_four_million_nodes_shows_its_allocation() -> None:
    found = arrived(running("1", on={"n1": 2}, request=request(gpus_per_node=2, min_nodes=4_000_000)))
    assert found.jobs.num_gpus.tolist() == [2]
    assert found.jobs.cpus_per_gpu.tolist() == [0.5]


@pytest.mark.parametrize("held", [True, False])
def test_a_request_beyond_64_bits_does_not_stop_the_controller(held: bool) -> None:
    wanted = request(gpus_per_node=4, min_nodes=1 << 53, num_cpus=1 << 53, memory_mib_per_cpu=1 << 53)
    found = arrived(job("1", request=wanted) if held else running("1", on={"n1": 2}, request=wanted))
    assert len(found.jobs) == (0 if held else 1)
    assert np.all(found.jobs.memory_mib_per_gpu <= 1e15)


def test_tasks_that_occupy_more_than_the_message_can_say() -> None:
    share = NodeShare("n1", 4096, 0, 1 << 16, 1 << 40)
    foreign = [
        replace(running(str(number), on={"n1": 1}, batch=False), allocated=(share,) * (1 << 16)) for number in (1, 2)
    ]
    assert arrived(*foreign).nodes.foreign_cpus.tolist()[0] == (1 << 32) - 1


def test_a_user_name_that_is_no_utf_8_has_one_digest() -> None:
    state = Observer().observe(snapshot(job("1", user="\udcf4x")), Ledger(), frozenset({"dl"})).state
    assert state_digest(state) == state_digest(parse_state(serialize_state(state)))


@pytest.mark.parametrize(
    "change", [("gpu:a100:8", "gpu:a100:65536"), ("CPUEfctv=62", "CPUEfctv=-1"), ("CPUEfctv=62", "CPUEfctv=4294967296")]
)
def test_a_node_with_numbers_that_no_node_has_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(SlurmReplyError, match="no cluster has"):
        parse_node(node_line().replace(*change))


def test_a_share_with_numbers_that_no_node_has_is_refused() -> None:
    for before, after in (("gpu:a100:2(IDX:0,3)", "gpu:a100:65536"), ("Mem=4000 ", "Mem=9007199254740992 ")):
        with pytest.raises(SlurmReplyError, match="no cluster has"):
            parse_job(job_line(**RUNNING).replace(before, after), CLOCK)
    for tres in ("cpu=-1,node=1", "cpu=4294967296,node=1"):
        with pytest.raises(SlurmReplyError, match="no cluster has"):
            parse_job(job_line(**RUNNING | {"details": "", "tres": tres}), CLOCK)


def test_a_tier_a_limit_and_a_weight_are_bounded() -> None:
    with pytest.raises(SlurmReplyError, match="no cluster has"):
        parse_partition("PartitionName=dl Nodes=n1 MaxTime=UNLIMITED State=UP PriorityTier=-1")
    with pytest.raises(SlurmReplyError, match="not a duration"):
        duration_s("9" * 40 + "-00:00:00")
    for weight in ("nan", "1e999"):
        with pytest.raises(SlurmReplyError, match="not a number"):
            weights_of({"PriorityType": "priority/multifactor", "PriorityWeightAge": weight})
