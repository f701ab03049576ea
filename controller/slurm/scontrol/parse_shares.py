"""Parsers of users' fair shares and of the tables of QOS and of associations, as Slurm's programs print them. Pure functions."""

from __future__ import annotations

import math

from controller.base.errors import SlurmReplyError
from controller.base.text import clip
from controller.slurm.model.shares import Association, QosPreemption
from controller.slurm.scontrol.values import duration_s, whole

SSHARE = ("--noheader", "--parsable2", "--all", "--format=Account,User,Partition,FairShare")
"""Arguments of sshare, whose answer `parse_fair_shares` reads."""
SHOW_QOS = (
    "--noheader", "--parsable2", "show", "qos", "format=Name,Priority,Preempt,PreemptMode,PreemptExemptTime,GraceTime",
)  # fmt: skip
"""Arguments of sacctmgr, whose answer `parse_qos` reads."""
_UNSET = frozenset({"", "-1", "INFINITE"})


def parse_fair_shares(text: str) -> dict[Association, float]:
    """Return the factor of each user's association. Lines of accounts have no user, and no factor. Raises SlurmReplyError."""
    found: dict[Association, float] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4:
            raise SlurmReplyError(f"sshare: not understood: {clip(line)}")
        account, user, partition, factor = fields
        if user and factor:
            found[account, user, partition] = _factor(factor, line)
    return found


def show_associations(cluster: str) -> tuple[str, ...]:
    """Return the arguments of sacctmgr, whose answer `parse_associations` reads: slurmdbd may have those of other clusters too."""
    return (
        *("--noheader", "--parsable2", "show", "associations", f"cluster={cluster}"),
        "format=Account,User,Partition,Priority",
    )


def parse_associations(text: str) -> dict[Association, int]:
    """Return the priority of each association that has one; Slurm prints it also where the account gives it. Raises
    SlurmReplyError."""
    found: dict[Association, int] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 4 or not (fields[3].isdecimal() or fields[3] in _UNSET):
            raise SlurmReplyError(f"sacctmgr show associations: not understood: {clip(line)}")
        account, user, partition, priority = fields
        if priority not in _UNSET:
            found[account, user, partition] = whole(priority)
    return found


def parse_qos(text: str) -> tuple[dict[str, int], dict[str, QosPreemption]]:
    """Return the priority and the preemption of each QOS. Raises SlurmReplyError."""
    priorities: dict[str, int] = {}
    preemption: dict[str, QosPreemption] = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != 6 or not fields[1].isdecimal():
            raise SlurmReplyError(f"sacctmgr show qos: not understood: {clip(line)}")
        name, priority, preempts, mode, exempt, grace = fields
        priorities[name] = whole(priority)
        preemption[name] = QosPreemption(
            preempts=frozenset(filter(None, preempts.split(","))),
            mode="" if mode == "cluster" else mode.upper(),
            exempt_s=duration_s(exempt) if exempt not in _UNSET else None,
            grace_s=(duration_s(grace) or 0.0) if grace not in _UNSET else 0.0,
        )
    return priorities, preemption


def _factor(text: str, line: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise SlurmReplyError(f"sshare: not a factor from 0 to 1: {clip(line)}")
    return value
