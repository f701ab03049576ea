"""The clusters on which cases are played.

A cluster consists of lots: three nodes with partitions of their own, in which one case is played at a time. So cases on
different lots do not disturb each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from slurm.minicluster.spec import ACCOUNT, PartitionSpec
from tests.parity.case import OTHER, USER

NODES_PER_LOT = 3
GPU_TYPES = ("a100",) * 4 + ("h100",) * 2 + ("1g.10gb",) * 2
"""Types of the GPUs of a node; the last is a part of a GPU (MIG)."""
FEATURES = (("fast", "rack1", "ib"), ("slow", "rack1", "ib"), ("fast", "rack2"))
"""Features of the nodes of a lot."""
UNMANAGED = "cpu"
"""The partition that Headway does not manage."""
EXEMPT_S = 20
"""Time for which a job of the QOS `kept`, or of any partition in the world `exempt`, runs before it may be preempted, seconds."""
_LIMITS = "MaxTime=60 DefaultTime=10"

PARTITIONS: Mapping[str, tuple[tuple[int, ...], str]] = {
    "gpu": ((0, 1, 2), f"{_LIMITS} PriorityTier=10 PriorityJobFactor=10"),
    "left": ((0, 1), f"{_LIMITS} PriorityTier=10"),
    "right": ((2,), f"{_LIMITS} PriorityTier=10"),
    "high": ((0, 1, 2), f"{_LIMITS} PriorityTier=20"),
    "favored": ((0, 1, 2), f"{_LIMITS} PriorityTier=10 PriorityJobFactor=100"),
    "short": ((0, 1, 2), "MaxTime=1 MaxNodes=2 PriorityTier=10"),
    "whole": ((0, 1, 2), f"{_LIMITS} OverSubscribe=EXCLUSIVE PriorityTier=10"),
    "down": ((0, 1, 2), f"{_LIMITS} State=DOWN"),
    "drain": ((0, 1, 2), f"{_LIMITS} State=DRAIN"),
    "inactive": ((0, 1, 2), f"{_LIMITS} State=INACTIVE"),
    "closed": ((0, 1, 2), f"{_LIMITS} AllowGroups=root"),
    "wide": ((0, 1, 2), f"{_LIMITS} MinNodes=2 PriorityTier=10"),
    "lean": ((0, 1, 2), f"{_LIMITS} MaxCPUsPerNode=8 MaxMemPerNode=32000 DefMemPerGPU=2000 PriorityTier=10"),
    UNMANAGED: ((0, 1, 2), f"{_LIMITS} PriorityTier=10"),
}
"""Kind of partition → nodes of the lot, and options of its line in slurm.conf. Its name is the kind and the number of the lot."""

_ACCOUNTING = (
    f"add user {USER},{OTHER},sys,games Account={ACCOUNT}",
    "add qos high,low,kept,short,small,one,few,queue,wall,deny",
    "modify qos normal set Priority=10",
    "modify qos high set Priority=100 Preempt=low,kept",
    "modify qos low set Priority=0",
    f"modify qos kept set Priority=0 PreemptExemptTime=00:00:{EXEMPT_S}",
    "modify qos short set MaxWall=1 Flags=DenyOnLimit",
    "modify qos small set MaxTRESPerJob=gres/gpu=2",
    "modify qos one set MaxJobsPerUser=1",
    "modify qos few set MaxTRESPerUser=gres/gpu=4",
    "modify qos queue set MaxSubmitJobsPerUser=1",
    "modify qos wall set MaxWall=1",
    "modify qos deny set MaxTRESPerJob=gres/gpu=2 Flags=DenyOnLimit",
    f"modify account {ACCOUNT} set QOS+=high,low,kept,short,small,one,few,queue,wall,deny",
    "add account capped Description=x Organization=x",
    f"add user {USER} Account=capped GrpTRES=gres/gpu=8",
    "add account single Description=x Organization=x",
    f"add user {USER} Account=single MaxJobs=1",
    "add account submits Description=x Organization=x",
    f"add user {USER} Account=submits MaxSubmitJobs=1",
    "add account brief Description=x Organization=x",
    f"add user {USER} Account=brief MaxWallDurationPerJob=1",
    "add account nodes Description=x Organization=x",
    f"add user {USER} Account=nodes MaxTRESPerJob=node=1",
    "add account group Description=x Organization=x GrpJobs=1",
    f"add user {USER},{OTHER} Account=group",
    f"modify account capped,single,submits,brief,nodes,group set QOS+={'high,low,short,small,one,few'}",
)
"""Words of sacctmgr after the boot."""


_SHARES = (
    f"add user {USER},{OTHER} Account={ACCOUNT}",
    *(f"add account {name} Description=x Organization=x Fairshare=10" for name in ("even1", "even2", "poor", "both")),
    "add account rich Description=x Organization=x Fairshare=90",
    *(f"add user {USER} Account={name}" for name in ("even1", "even2", "poor", "rich")),
    f"add user {USER},{OTHER} Account=both",
)
"""Accounts with shares: two alike, one with few and one with many, and one of two users."""


@dataclass(frozen=True, slots=True)
class World:
    """One cluster: its settings beside lots and partitions."""

    settings: tuple[str, ...]
    """Lines of slurm.conf."""
    lots: int
    accounting: tuple[str, ...] = ()
    """Words of sacctmgr after the boot; without any, the cluster has no slurmdbd."""
    partitions: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=lambda: PARTITIONS)
    switches: bool = False
    """True if the first two nodes of a lot are under one switch, the third under another one."""

    def spec_fields(self, *, accounting: bool) -> dict[str, Any]:
        """Return the fields of the mini-cluster's specification, with slurmdbd or without."""
        with_accounting = accounting and bool(self.accounting)
        return {
            "nodes": self.lots * NODES_PER_LOT,
            "gpu_types": GPU_TYPES,
            "shards": 16,
            "features": {
                f"n{lot * NODES_PER_LOT + at + 1}": features
                for lot in range(self.lots)
                for at, features in enumerate(FEATURES)
            },
            "partitions": tuple(
                PartitionSpec(f"{kind}{lot}", tuple(f"n{lot * NODES_PER_LOT + at + 1}" for at in nodes), options)
                for lot in range(self.lots)
                for kind, (nodes, options) in self.partitions.items()
            ),
            "extra_conf": self.settings if with_accounting else _without_qos(self.settings),
            "accounting": with_accounting,
            "added_files": {"etc/topology.conf": self._topology()} if self.switches else {},
        }

    def _topology(self) -> str:
        """Return the text of topology.conf, a tree."""
        lines, leaves = [], []
        for lot in range(self.lots):
            first = lot * NODES_PER_LOT + 1
            for leaf, nodes in ((f"left{lot}", f"n{first},n{first + 1}"), (f"right{lot}", f"n{first + 2}")):
                lines.append(f"SwitchName={leaf} Nodes={nodes}")
                leaves.append(leaf)
        return "\n".join([*lines, f"SwitchName=top Switches={','.join(leaves)}", ""])

    def managed(self) -> tuple[str, ...]:
        """Return the names of the partitions that Headway manages."""
        return tuple(f"{kind}{lot}" for lot in range(self.lots) for kind in self.partitions if kind != UNMANAGED)


def _without_qos(settings: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings without preemption by QOS, which needs slurmdbd."""
    if _BY_QOS not in settings:
        return settings
    return tuple(line for line in settings if line != _BY_QOS and not line.startswith("PreemptMode="))


_BY_QOS = "PreemptType=preempt/qos"
_TIERS = {
    "gpu": ((0, 1, 2), f"{_LIMITS} PriorityTier=10"),
    "low": ((0, 1, 2), f"{_LIMITS} PriorityTier=1"),
    "cancel": ((0, 1, 2), f"{_LIMITS} PriorityTier=1 PreemptMode=CANCEL"),
    "never": ((0, 1, 2), f"{_LIMITS} PriorityTier=1 PreemptMode=OFF"),
    "grace": ((0, 1, 2), f"{_LIMITS} PriorityTier=1 PreemptMode=CANCEL GraceTime=5"),
    UNMANAGED: ((0, 1, 2), f"{_LIMITS} PriorityTier=1"),
}
_PLAIN = dict.fromkeys(("gpu", UNMANAGED), ((0, 1, 2), _LIMITS))
_FIRST = "FirstJobId=10000"
"""No other number in the output of a job looks like an id."""
_COMMON = (
    _FIRST,
    "PriorityType=priority/multifactor",
    "PriorityWeightAge=1000",
    "PriorityWeightPartition=10000",
    "PriorityWeightQOS=100000",
    "PreemptMode=REQUEUE",
    f"Licenses={','.join(f'lic{number}:1' for number in range(1, 6))},pair:2",
)
WORLDS: Mapping[str, World] = {
    "main": World((*_COMMON, _BY_QOS), lots=8, accounting=_ACCOUNTING),
    "tiers": World((*_COMMON, "PreemptType=preempt/partition_prio"), lots=2, partitions=_TIERS),
    "exempt": World(
        (*_COMMON, "PreemptType=preempt/partition_prio", f"PreemptExemptTime=00:00:{EXEMPT_S}"),
        lots=2,
        partitions=_TIERS,
    ),
    "switches": World((_FIRST, "TopologyPlugin=topology/tree"), lots=3, partitions=_PLAIN, switches=True),
    "shares": World(
        (
            _FIRST,
            "PriorityType=priority/multifactor",
            "PriorityWeightAge=1000",
            "PriorityWeightFairshare=100000",
            "PriorityCalcPeriod=1",
        ),
        lots=3,
        accounting=_SHARES,
        partitions=_PLAIN,
    ),
}


class Lot:
    """Three nodes and their partitions, by the names that cases use."""

    def __init__(self, number: int, world: World) -> None:
        self.number = number
        self.names = {kind: f"{kind}{number}" for kind in world.partitions}
        first = number * NODES_PER_LOT
        self.names |= {f"n{at + 1}": f"n{first + at + 1}" for at in range(NODES_PER_LOT)}

    @cached_property
    def _back(self) -> dict[str, str]:
        return {name: word for word, name in self.names.items()}

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(r"\b(" + "|".join(sorted(map(re.escape, self._back), key=len, reverse=True)) + r")\b")

    def neutral(self, text: str) -> str:
        """Return the text with the names that the first lot has."""
        return self._pattern.sub(lambda found: self._back[found[1]], _HOSTS.sub(_expanded, text))


_HOSTS = re.compile(r"\bn\[([\d,-]+)\]")


def _expanded(found: re.Match[str]) -> str:
    """Return the nodes of n[4-5,7] one by one."""
    nodes = []
    for part in found[1].split(","):
        first, _, last = part.partition("-")
        nodes += [f"n{number}" for number in range(int(first), int(last or first) + 1)]
    return ",".join(nodes)
