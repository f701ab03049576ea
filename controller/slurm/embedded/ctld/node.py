"""A node's record: its resources, the jobs' shares of them, and its state."""

from __future__ import annotations

from dataclasses import dataclass, field

from controller.slurm.embedded.ctld.allocation import Capacity
from controller.slurm.model.cluster import SlurmNode
from controller.slurm.model.job import NodeShare


@dataclass(slots=True)
class Node:
    """One node. Invariant: `free` is the whole node without the shares in `shares`."""

    name: str
    gpus: int
    gpu_type: str
    cpus: int
    memory_mib: int
    features: frozenset[str]
    partitions: frozenset[str]
    down: str = ""
    """"DOWN" (by an operator) or "DOWN*" (does not answer); empty when it is up."""
    drain: bool = False
    reason: str = ""
    power: str = ""
    """"POWERED_DOWN" (it sleeps) or "POWERING_UP" (it boots for its first job); empty when it is on."""
    boot_s: float = 0.0
    """Time from its first job to its registration, seconds; infinite: it never registers."""
    awake_at_s: float = 0.0
    """Time at which its boot ends."""
    shares: dict[str, NodeShare] = field(default_factory=dict)
    """Job id → the resources that the job occupies here."""
    free: Capacity = field(init=False)

    def __post_init__(self) -> None:
        self.free = self.whole

    @property
    def whole(self) -> Capacity:
        """Capacity of the node without jobs."""
        return Capacity((1 << self.gpus) - 1, self.cpus, self.memory_mib, True)

    @property
    def available(self) -> bool:
        """True when the node may start jobs; it boots first if it sleeps."""
        return not self.down and not self.drain

    def take(self, job_id: str, share: NodeShare) -> None:
        """Give a share to a job."""
        self.shares[job_id] = share
        self._recount()

    def give_back(self, job_id: str) -> None:
        """Free a job's share; nothing happens when it has none."""
        self.shares.pop(job_id, None)
        self._recount()

    def without(self, job_ids: frozenset[str]) -> Capacity:
        """Return the free resources as if those jobs had ended."""
        free = self.whole
        for job_id, share in self.shares.items():
            if job_id not in job_ids:
                free = free.less(share)
        return free

    def view(self, maintenance: bool) -> SlurmNode:
        """Return the node as Slurm shows it. `maintenance`: a reservation for maintenance has it, whose own jobs may start."""
        return SlurmNode(
            name=self.name,
            state=self._state(maintenance),
            available=self.available,
            gpus=self.gpus,
            gpu_type=self.gpu_type,
            cpus=self.cpus,
            memory_mib=self.memory_mib,
            features=self.features,
            partitions=self.partitions,
            reason=self.reason,
            gpus_by_type=((self.gpu_type, self.gpus),) if self.gpu_type else (),
        )

    def _recount(self) -> None:
        self.free = self.without(frozenset())

    def _state(self, maintenance: bool) -> str:
        full = self.free.cpus == 0 or (bool(self.gpus) and self.free.gpus == 0 and not self.free.whole)
        base = self.down or ("IDLE" if self.free.whole else "ALLOCATED" if full else "MIXED")
        boots = self.power == "POWERING_UP"
        flags = [
            flag
            for flag, is_on in (
                ("MAINTENANCE+RESERVED", maintenance),
                ("DRAIN", self.drain),
                ("NOT_RESPONDING", boots),
            )
            if is_on
        ]
        return "+".join(filter(None, [base, *flags, self.power]))
