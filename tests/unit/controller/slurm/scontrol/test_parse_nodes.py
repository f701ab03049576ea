from __future__ import annotations

import pytest

from controller.base.errors import SlurmReplyError
from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmReservation
from controller.slurm.scontrol.parse_nodes import (
    NOT_REGISTERED,
    NOT_REGISTERED_ASLEEP,
    name_if_registered,
    node_is_available,
    parse_node,
    parse_partition,
    parse_reservation,
    ticking_in_node,
)
from tests.unit.controller.slurm.scontrol.text import CLOCK, SUBMIT_S, at, node_line


def test_a_node() -> None:
    assert parse_node(node_line()) == SlurmNode(
        name="n1",
        state="IDLE",
        available=True,
        gpus=8,
        gpu_type="a100",
        cpus=62,
        memory_mib=250_000,
        features=frozenset({"fast"}),
        partitions=frozenset({"dl", "short"}),
        reason="",
        address="10.0.0.1",
        gpus_by_type=(("a100", 8),),
    )


def test_types_that_only_number_the_gpus_are_no_type() -> None:
    node = parse_node(node_line(gres=",".join(f"gpu:g{index}:1" for index in range(8))))
    assert (node.gpus, node.gpu_type) == (8, "")
    assert dict(node.gpus_by_type) == {f"g{index}": 1 for index in range(8)}


def test_gpus_of_several_types_are_counted_by_type() -> None:
    node = parse_node(node_line(gres="gpu:a100:4(S:0),gpu:1g.10gb:2,gpu:2,nic:1"))
    assert (node.gpus, node.gpu_type, node.gpus_by_type) == (8, "", (("a100", 4), ("1g.10gb", 2)))


@pytest.mark.parametrize("never", ["None", "Unknown"])
def test_a_node_that_has_not_registered_since_slurmctld_started(never: str) -> None:
    node = parse_node(node_line().replace(f"SlurmdStartTime={at()}", f"SlurmdStartTime={never}"))
    assert (node.available, node.reason) == (False, NOT_REGISTERED)
    drained = node_line(state="IDLE+DRAIN", more=" Reason=fans [root@2026-01-01T00:00:00]")
    assert parse_node(drained.replace(f"SlurmdStartTime={at()}", f"SlurmdStartTime={never}")).reason == "fans"


@pytest.mark.parametrize("never", ["None", "Unknown"])
@pytest.mark.parametrize("state", ["IDLE+CLOUD+POWERED_DOWN", "MIXED+CLOUD+NOT_RESPONDING+POWERING_UP"])
def test_a_cloud_node_that_sleeps_need_not_have_registered(state: str, never: str) -> None:
    line = node_line(state=state).replace(f"SlurmdStartTime={at()}", f"SlurmdStartTime={never}")
    assert (parse_node(line).available, parse_node(line).reason) == (True, "")
    assert name_if_registered(line) == "n1"


@pytest.mark.parametrize("state", ["IDLE+POWERED_DOWN", "MIXED+NOT_RESPONDING+POWERING_UP"])
def test_another_node_that_sleeps_must_have_registered_because_slurm_would_not_know_its_gpus(state: str) -> None:
    assert parse_node(node_line(state=state)).available
    line = node_line(state=state).replace(f"SlurmdStartTime={at()}", "SlurmdStartTime=None")
    assert (parse_node(line).available, parse_node(line).reason) == (False, NOT_REGISTERED_ASLEEP)
    assert name_if_registered(line) == ""


def test_a_node_sleeps_until_it_has_booted() -> None:
    states = ["IDLE+POWERED_DOWN", "MIXED+NOT_RESPONDING+POWERING_UP", "IDLE~", "MIXED#", "IDLE", "IDLE+POWERING_DOWN"]
    assert [parse_node(node_line(state=state)).is_asleep for state in states] == [True, True, True, True, False, False]


def test_a_node_without_gpus() -> None:
    assert parse_node(node_line(gres="(null)")).gpus == 0


@pytest.mark.parametrize(
    "state",
    [
        "IDLE", "MIXED", "ALLOCATED", "IDLE+PLANNED", "IDLE+RESERVED", "MIXED+CLOUD", "ALLOCATED+COMPLETING", "IDLE-",
        "IDLE+POWERED_DOWN", "IDLE+CLOUD+POWERED_DOWN", "IDLE~", "IDLE+POWERING_UP", "IDLE+POWER_UP", "MIXED#",
        "MIXED+POWERED_DOWN", "IDLE+NOT_RESPONDING+POWERED_DOWN", "MIXED+NOT_RESPONDING+POWERING_UP",
        "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP", "IDLE+MAINTENANCE+RESERVED", "IDLE+MAINT", "IDLE$",
    ],
)  # fmt: skip
def test_states_in_which_jobs_may_start(state: str) -> None:
    assert node_is_available(state)


@pytest.mark.parametrize(
    "state",
    [
        "DOWN", "DOWN*", "DOWN+DRAIN", "IDLE+DRAIN", "MIXED+DRAIN", "IDLE*", "IDLE+NOT_RESPONDING", "UNKNOWN+NOT_RESPONDING",
        "IDLE+FAIL", "FUTURE", "IDLE+POWER_DOWN", "IDLE+POWER_DRAIN", "IDLE+INVALID_REG",
        "IDLE+REBOOT_ISSUED", "ERROR", "IDLE+BLOCKED", "IDLE+POWERING_DOWN", "IDLE@", "IDLE%", "IDLE!",
        "IDLE+MAINTENANCE+DRAIN",
        "DOWN+POWERED_DOWN+NOT_RESPONDING", "IDLE+DRAIN+POWERED_DOWN", "IDLE+POWERED_DOWN+POWER_DOWN", "IDLE+CLOUD+NOT_RESPONDING",
    ],
)  # fmt: skip
def test_states_in_which_none_may(state: str) -> None:
    assert not node_is_available(state)


def test_reasons_may_look_like_fields() -> None:
    node = parse_node(node_line(state="IDLE+DRAIN", more=f" Reason=bad State=IDLE x [root@{at()}]"))
    assert (node.state, node.available, node.reason) == ("IDLE+DRAIN", False, "bad State=IDLE x")


def test_what_ticks_is_cut_out() -> None:
    line = node_line(load="63.99").encode()
    ticking = [line[begin:end] for begin, end in ticking_in_node(line)]
    assert b"63.99" in ticking
    assert not any(b" " in value or value == b"IDLE" for value in ticking)


def test_partitions_and_reservations() -> None:
    partition = "PartitionName=dl AllowGroups=ALL Default=YES MaxTime=1-00:00:00 Nodes=n[1-2] State=UP TotalNodes=2"
    assert parse_partition(partition) == SlurmPartition("dl", frozenset({"n1", "n2"}), True, 86400.0)
    drained = parse_partition(partition.replace("State=UP", "State=DRAIN").replace("1-00:00:00", "UNLIMITED"))
    assert (drained.up, drained.max_time_s) == (False, None)
    reservation = f"ReservationName=r StartTime={at(10)} EndTime={at(20)} Duration=00:00:10 Nodes=n[3-4] NodeCnt=2"
    assert parse_reservation(reservation, CLOCK) == SlurmReservation("r", frozenset({"n3", "n4"}), 10.0, 20.0)
    flags = " Flags=SPEC_NODES,MAGNETIC TRES=cpu=128 Users=ann,-bob Groups=(null) Accounts=(null) Licenses=(null)"
    magnetic = parse_reservation(reservation + flags, CLOCK)
    assert (magnetic.magnetic, magnetic.users, magnetic.accounts) == (True, frozenset({"ann", "-bob"}), frozenset())


@pytest.mark.parametrize(
    "text", ["", "rubbish", "NodeName=n1", node_line().replace("RealMemory=256000", "RealMemory=lots")]
)
def test_text_that_cannot_be_parsed_is_an_error(text: str) -> None:
    with pytest.raises(SlurmReplyError):
        parse_node(text)
    with pytest.raises(SlurmReplyError):
        parse_partition("PartitionName=dl")
    with pytest.raises(SlurmReplyError):
        parse_reservation(f"ReservationName=r StartTime={SUBMIT_S} EndTime={SUBMIT_S}", CLOCK)


def test_limits_and_preemption_of_a_partition() -> None:
    text = (
        "PartitionName=dl MaxNodes=2 MaxTime=00:01:00 MinNodes=1 Nodes=n1 PriorityTier=10 State=UP "
        "GraceTime=5 PreemptMode=GANG,SUSPEND"
    )
    found = parse_partition(text)
    assert (found.min_nodes, found.max_nodes, found.grace_s) == (1, 2, 5.0)
    assert (found.preempt_mode, found.priority_tier) == ("GANG,SUSPEND", 10)
    unlimited = parse_partition(text.replace("MaxNodes=2", "MaxNodes=UNLIMITED").replace("GraceTime=5 ", ""))
    assert (unlimited.max_nodes, unlimited.grace_s) == (None, 0.0)
