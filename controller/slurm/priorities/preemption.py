"""Slurm's rules of preemption: which running job may be stopped for which waiting one. Pure functions.

As slurmctld's plugins preempt/qos and preempt/partition_prio have them. A job that is only suspended keeps its GPUs (measured), so
jobs under PreemptMode=SUSPEND make no room for jobs with GPUs: on 22.05 Slurm does not touch them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from controller.slurm.model.cluster import SlurmPartition
from controller.slurm.model.job import Phase, SlurmJob
from controller.slurm.model.shares import QosPreemption, Shares
from controller.slurm.scontrol.values import duration_s

_BY_QOS, _BY_TIER = "preempt/qos", "preempt/partition_prio"
_NO_EXEMPTION = frozenset({"", "-1", "INFINITE", "(null)"})
_MOST = 0xFFFF
"""Largest number that Slurm compares, of the QOS, the tier or the nodes of a job that runs."""


class StopMode(StrEnum):
    """Treatment of a job that Slurm stops for another one."""

    REQUEUE = "requeue"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """Rules of one cluster, as of the last reading. They say nothing about whether there is room after a stop."""

    by_qos: bool
    """True: by QOS (preempt/qos). False: by the tier of the partition (preempt/partition_prio)."""
    mode: str
    """PreemptMode of the cluster."""
    exempt_s: float = 0.0
    """PreemptExemptTime of the cluster, seconds."""
    youngest_first: bool = False
    qos: Mapping[str, QosPreemption] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Priority of each QOS."""
    kill_s: float = 30.0
    """Time that the processes of a stopped job have to end (KillWait), seconds."""

    @classmethod
    def of(cls, settings: Mapping[str, str], shares: Shares) -> Self | None:
        """Return the rules; None if Slurm does not preempt. Raises SlurmReplyError."""
        kind = settings.get("PreemptType", "")
        if kind not in {_BY_QOS, _BY_TIER}:
            return None
        exempt = settings.get("PreemptExemptTime", "")
        kill = settings.get("KillWait", "").split(" ")[0]
        return cls(
            by_qos=kind == _BY_QOS,
            mode=settings.get("PreemptMode", "").upper(),
            exempt_s=0.0 if exempt in _NO_EXEMPTION else (duration_s(exempt) or 0.0),
            youngest_first="youngest_first" in settings.get("PreemptParameters", "").split(","),
            qos=shares.preemption,
            priorities=shares.qos,
            kill_s=float(kill) if kill.isdecimal() else 30.0,
        )

    def may_stop(self, waiting: SlurmJob, other: SlurmJob, partitions: Mapping[str, SlurmPartition]) -> bool:
        """Return whether Slurm's rules let the waiting job take the place of the other one, exempt times aside."""
        if self.by_qos:
            own = self.qos.get(waiting.qos)
            return own is not None and other.qos in own.preempts
        # Of several partitions the lowest holds, wherever the job starts: Slurm compares the one that it tries.
        tier = min((_tier(partitions, name) for name in waiting.partition.split(",")), default=1)
        return tier > _tier(partitions, other.partition)

    def stop_mode(self, job: SlurmJob, partitions: Mapping[str, SlurmPartition]) -> StopMode | None:
        """Return what Slurm does with the job; None: its rules do not let it free the job's GPUs for another one."""
        words = set((self._own_mode(job, partitions) or self.mode).split(","))
        if "REQUEUE" in words:
            return StopMode.REQUEUE if job.batch and job.requeue else StopMode.CANCEL
        return StopMode.CANCEL if "CANCEL" in words else None

    def exempt_until_s(self, job: SlurmJob) -> float:
        """Return the time until which the running job is exempt, as a Unix time."""
        own = self.qos.get(job.qos)
        exempt_s = self.exempt_s if own is None or own.exempt_s is None else own.exempt_s
        return (job.start_time_s or 0.0) + exempt_s

    def grace_s(self, job: SlurmJob, partitions: Mapping[str, SlurmPartition]) -> float:
        """Return the time that Slurm gives the job to end by itself, seconds."""
        if self.by_qos:
            return self.qos[job.qos].grace_s if job.qos in self.qos else 0.0
        return partitions[job.partition].grace_s if job.partition in partitions else 0.0

    def order(self, job: SlurmJob, partitions: Mapping[str, SlurmPartition]) -> tuple[float, ...]:
        """Return the sort key in which Slurm stops jobs: lowest QOS or tier first, of these small or young ones first."""
        level = self.priorities.get(job.qos, 0) if self.by_qos else _tier(partitions, job.partition)
        if self.youngest_first:
            return min(level, _MOST), -(job.start_time_s or 0.0)
        return min(level, _MOST), min(len(job.allocated), _MOST), job.start_time_s or 0.0

    def because(self, waiting: SlurmJob, others: Iterable[SlurmJob]) -> str:
        """Return the rule as text for users: "QOS high preempts low"."""
        if self.by_qos:
            return f"QOS {waiting.qos} preempts {' and '.join(sorted({job.qos for job in others}))}"
        names = " and ".join(sorted({job.partition for job in others}))
        return f"partition {waiting.partition} has a higher PriorityTier than {names}"

    def _own_mode(self, job: SlurmJob, partitions: Mapping[str, SlurmPartition]) -> str:
        if self.by_qos:
            return self.qos[job.qos].mode if job.qos in self.qos else ""
        return partitions[job.partition].preempt_mode.upper() if job.partition in partitions else ""


def holds_nodes(job: SlurmJob) -> bool:
    """Return whether Slurm considers the job for a stop: it runs, or is suspended."""
    return job.phase in {Phase.RUNNING, Phase.SUSPENDED} and bool(job.allocated)


def _tier(partitions: Mapping[str, SlurmPartition], name: str) -> int:
    return partitions[name].priority_tier if name in partitions else 1
