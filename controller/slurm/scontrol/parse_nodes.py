"""Turns the lines of nodes, partitions and reservations into frozen objects. Only administrators write these."""

from __future__ import annotations

import re
from collections.abc import Mapping

from controller.base.errors import SlurmReplyError
from controller.base.text import clip
from controller.slurm.hostlist import MOST_CPUS, MOST_NODE_GPUS, NODE_NAME, expand_nodes
from controller.slurm.model.cluster import SlurmNode, SlurmPartition, SlurmReservation, is_asleep
from controller.slurm.scontrol import values
from controller.slurm.scontrol.clockface import Clockface

_WORKING = frozenset({"IDLE", "MIXED", "ALLOCATED"})
_BARRING = frozenset(
    {
        "BLOCKED",
        "DOWN",
        "DRAIN",
        "DRAINED",
        "DRAINING",
        "ERROR",
        "FAIL",
        "FAILING",
        "FUTURE",
        "INVAL",
        "INVALID",
        "INVALID_REG",
        "NOT_RESPONDING",
        "NO_RESPOND",
        "POWERING_DOWN",
        "POWER_DOWN",
        "POWER_DRAIN",
        "REBOOT",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "UNKNOWN",
    }
)
"""States in which a node starts no jobs. RESERVED, MAINT and MAINTENANCE (the word of 22.05) are not among them: Slurm starts a
reservation's own jobs there, also those of a maintenance (seen on 22.05), and the reservation itself keeps others off. POWERED_DOWN
and POWERING_UP are not either: Slurm boots such a node for the first job that it gets."""
_SILENT = frozenset({"NOT_RESPONDING", "NO_RESPOND"})
"""States that bar a node, unless Slurm's power saving has it off or boots it (seen on 22.05, also after a boot in vain)."""
NOT_REGISTERED = "its slurmd has not registered since slurmctld started"
"""Until then slurmctld of 22.05 knows the node's GPUs by number only: a job that starts there gets none of them, and its steps fail
(measured: for some four seconds). Of a node in state CLOUD it reads the GPUs from gres.conf, and its jobs get them (measured)."""
NOT_REGISTERED_ASLEEP = (
    f"it is powered down, and {NOT_REGISTERED}, which may not know its GPUs: power it up once "
    "(`scontrol update nodename=... state=power_up`), or give it State=CLOUD in slurm.conf"
)
"""The same for a node that sleeps and is not in state CLOUD: on 22.05 jobs that boot it get no GPU, or another one (measured)."""
_KEY = re.compile(r"(?:^| )([A-Za-z][A-Za-z_/:]*)=")
_TICKING = re.compile(
    rb" (?:A(?:lloc(?:Mem|TRES)|veWatts)|C(?:PU(?:Alloc|Load)|urrentWatts)|FreeMem|Gres(?:Used|Drain)|LastBusyTime)=([^ ]*)"
)
"""Fields that change all the time, grouped by first letters: over thousands of lines that is a quarter faster."""

_SINCE_26_05 = "AllowedPartitions"
"""Field of a reservation that 24.11 does not print."""


def ticking_in_node(line: bytes) -> list[tuple[int, int]]:
    """Return the places of values that change all the time and are not read."""
    return [match.span(1) for match in _TICKING.finditer(line)]


def node_is_available(state: str) -> bool:
    """Return whether a node in that state ("IDLE", "MIXED+DRAIN", "DOWN*") may start jobs."""
    words = set(state.rstrip("*~#!%$@^-").split("+"))
    if is_asleep(state):
        words -= _SILENT
    # The base state comes first, and only a base state is one of `_WORKING`.
    working = not _WORKING.isdisjoint(words)
    return working and not state.endswith(("*", "!", "%", "@", "^")) and _BARRING.isdisjoint(words)


def not_usable_yet(state: str, *, registered: bool) -> str:
    """Return why a node is not used before it has registered with slurmctld; empty if it has, or if it need not.

    `registered`: its slurmd has registered since slurmctld started.
    """
    if registered or (is_asleep(state) and "CLOUD" in state.split("+")):
        return ""
    return NOT_REGISTERED_ASLEEP if is_asleep(state) else NOT_REGISTERED


def name_if_registered(text: str) -> str:
    """Return the name of the node of one line of `show node` if it has registered with slurmctld, or need not because it is a cloud
    node that sleeps; otherwise an empty text.

    Raises SlurmReplyError.
    """
    fields = _fields(text, "NodeName")
    return "" if _not_usable_yet(fields) else fields["NodeName"]


def _not_usable_yet(fields: Mapping[str, str]) -> str:
    registered = fields.get("SlurmdStartTime") not in {"None", "Unknown"}
    return not_usable_yet(fields.get("State", ""), registered=registered)


def parse_node(text: str) -> SlurmNode:
    """Return the node of one line of `show node`. Raises SlurmReplyError."""
    fields = _fields(text, "NodeName")
    if not NODE_NAME.fullmatch(fields.get("NodeName", "")):
        raise SlurmReplyError(f"not the name of a node: {clip(text)}")
    try:
        gpus = values.gpus(fields["Gres"])
        cpus = fields.get("CPUEfctv") or fields["CPUTot"]
        state = fields["State"]
        reserved_mib = values.size_mib(fields.get("MemSpecLimit", "0")) or 0
        reason = _reason(text)
        not_yet = _not_usable_yet(fields)
        return SlurmNode(
            name=fields["NodeName"],
            state=state,
            available=not not_yet and node_is_available(state),
            gpus=values.within(gpus.count, MOST_NODE_GPUS, fields["Gres"]),
            gpu_type=gpus.type,
            cpus=values.within(values.whole(cpus), MOST_CPUS, cpus),
            memory_mib=max(values.whole(fields["RealMemory"]) - reserved_mib, 0),
            features=_words(fields, "ActiveFeatures"),
            partitions=frozenset(filter(None, fields.get("Partitions", "").split(","))),
            reason=reason or not_yet,
            address=values.plain(fields.get("NodeAddr", "")),
            gpus_by_type=values.gpus_by_type(fields["Gres"]),
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise SlurmReplyError(f"a node that is not understood ({error!r}): {clip(text)}") from None


def _reason(text: str) -> str:
    """Return the text of Reason=, the last field, without its author and time, such as " [root@2026-11-23T10:00:00]"."""
    reason = text.partition(" Reason=")[2].rstrip(" ")
    begin = reason.rfind(" [") if reason.endswith("]") else -1
    is_signed = begin >= 0 and not {"[", "]"} & set(reason[begin + 2 : -1])
    return reason[:begin] if is_signed else reason


def parse_partition(text: str) -> SlurmPartition:
    """Return the partition of one line of `show partition`. Raises SlurmReplyError."""
    fields = _fields(text, "PartitionName")
    tier = fields.get("PriorityTier", "1")
    try:
        return SlurmPartition(
            name=fields["PartitionName"],
            nodes=frozenset(expand_nodes(values.plain(fields.get("Nodes", "")))),
            up=fields["State"] == "UP",
            max_time_s=values.duration_s(fields["MaxTime"]),
            priority_tier=values.within(values.whole(tier), values.MOST_TIER, tier),
            priority_job_factor=values.whole(fields.get("PriorityJobFactor", "1")),
            preempt_mode=fields.get("PreemptMode", ""),
            min_nodes=values.whole(least) if (least := fields.get("MinNodes", "")).isdecimal() else 0,
            max_nodes=values.whole(most) if (most := fields.get("MaxNodes", "")).isdecimal() else None,
            grace_s=float(grace) if (grace := fields.get("GraceTime", "")).isdecimal() else 0.0,
        )
    except ValueError as error:
        raise SlurmReplyError(f"a partition that is not understood ({error}): {clip(text)}") from None
    except KeyError as error:
        raise SlurmReplyError(f"a partition without {error.args[0]}=: {clip(text)}") from None


def parse_reservation(text: str, clock: Clockface) -> SlurmReservation:
    """Return the reservation of one line of `show reservation`. Raises SlurmReplyError."""
    fields = _fields(text, "ReservationName")
    try:
        return SlurmReservation(
            name=fields["ReservationName"],
            nodes=frozenset(expand_nodes(values.plain(fields.get("Nodes", "")))),
            start_time_s=clock.seconds(fields["StartTime"]) or 0.0,
            end_time_s=clock.seconds(fields["EndTime"]) or 0.0,
            magnetic="MAGNETIC" in _words(fields, "Flags"),
            users=_words(fields, "Users"),
            accounts=_words(fields, "Accounts"),
            draws_only_shorter=_SINCE_26_05 in fields,
        )
    except KeyError as error:
        raise SlurmReplyError(f"a reservation without {error.args[0]}=: {clip(text)}") from None


def _words(fields: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(filter(None, values.plain(fields.get(name, "")).split(",")))


def _fields(text: str, first: str) -> dict[str, str]:
    """Return the fields of a line; of repeated ones, the first. Values may contain spaces, as OS= does."""
    if not text.startswith(f"{first}="):
        raise SlurmReplyError(f"not a line that begins with {first}=: {clip(text)}")
    fields: dict[str, str] = {}
    matches = list(_KEY.finditer(text))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        value = text[match.end() : following.start() if following else len(text)]
        fields.setdefault(match[1], value.strip())
    return fields
