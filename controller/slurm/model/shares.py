"""Factors of users and QOS in Slurm's order of jobs, and preemption among QOS, as in Slurm's accounting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Association = tuple[str, str, str]
"""Account, user, and partition or empty: the unit of Slurm's fair share."""


@dataclass(frozen=True, slots=True)
class QosPreemption:
    """Preemption by and of the jobs of one QOS, as in Slurm's accounting."""

    preempts: frozenset[str] = frozenset()
    """QOS whose jobs it preempts."""
    mode: str = ""
    """PreemptMode of its own jobs in capital letters; empty: that of the cluster."""
    exempt_s: float | None = None
    """Run time within which its own jobs are not preempted, seconds; None: that of the cluster."""
    grace_s: float = 0.0
    """Time that Slurm gives its own jobs to end before it stops them for others, seconds."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Factors of users and QOS. All are empty where Slurm has no accounting."""

    fair_share: Mapping[Association, float] = field(default_factory=dict)
    """Fair-share factor of each association, from 0 to 1."""
    qos: Mapping[str, int] = field(default_factory=dict)
    """Priority of each QOS."""
    preemption: Mapping[str, QosPreemption] = field(default_factory=dict)
    """Preemption by and of each QOS."""
    association: Mapping[Association, int] = field(default_factory=dict)
    """Priority of each association that has one, those of accounts (with an empty user) included; empty: they were not read."""

    def fair_share_of(self, account: str, user: str, partition: str) -> float:
        """Return the factor of a job's association: the one for its partition, else the one for all; 0 without one, as in Slurm."""
        return _of_association(self.fair_share, account, user, partition)

    def association_priority_of(self, account: str, user: str, partition: str) -> float:
        """Return the priority of a job's association: the one for its partition, else the one for all; 0 without one."""
        return _of_association(self.association, account, user, partition)


def _of_association(table: Mapping[Association, float], account: str, user: str, partition: str) -> float:
    for association in ((account, user, partition), (account, user, "")):
        if association in table:
            return table[association]
    return 0.0
