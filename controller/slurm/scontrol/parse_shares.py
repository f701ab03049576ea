"""Parsers of users' fair shares and of the priorities of QOS, as Slurm's programs print them. Pure functions."""

from __future__ import annotations

import math

from controller.base.errors import SlurmReplyError
from controller.base.text import clip
from controller.slurm.client import Association

SSHARE = ("--noheader", "--parsable2", "--all", "--format=Account,User,Partition,FairShare")
"""Arguments of sshare, whose answer `parse_fair_shares` reads."""
SACCTMGR = ("--noheader", "--parsable2", "show", "qos", "format=Name,Priority")
"""Arguments of sacctmgr, whose answer `parse_qos` reads."""


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


def parse_qos(text: str) -> dict[str, int]:
    """Return the priority of each QOS. Raises SlurmReplyError."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, separator, priority = line.rpartition("|")
        if not separator or not priority.isdecimal():
            raise SlurmReplyError(f"sacctmgr show qos: not understood: {clip(line)}")
        found[name] = int(priority)
    return found


def _factor(text: str, line: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.0 <= value <= 1.0:
        raise SlurmReplyError(f"sshare: not a factor from 0 to 1: {clip(line)}")
    return value
