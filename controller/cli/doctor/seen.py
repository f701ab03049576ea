"""Facts that `headway doctor` has collected about Slurm, the policy server and the controller's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from controller.base.lease import Lease
from controller.cli.doctor.agents import AgentsSeen

if TYPE_CHECKING:
    from controller.slurm.client import SlurmFacts
    from controller.slurm.model.cluster import SlurmNode, SlurmPartition
    from policies.api import PolicySpec


@dataclass(frozen=True, slots=True)
class SlurmSeen:
    """Answers of slurmctld, or the reason why it gave none."""

    facts: SlurmFacts | None = None
    partitions: tuple[SlurmPartition, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PolicySeen:
    """Answer of the policy server, or the reason why it gave none."""

    spec: PolicySpec | None = None
    healthy: bool = False
    problem: str = ""
    may_look: bool = True
    """False: this user may not open the server's socket, so the server was not checked."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All collected facts. `slurm` is None for the embedded Slurm, which has no installation."""

    slurm: SlurmSeen | None
    policy: PolicySeen
    lease: Lease | None
    now_s: float
    agents: AgentsSeen | None = None
    """None: the settings have no agents_address."""
    troubles: tuple[str, ...] = ()
    """Sentences by the controller about its background tasks that failed recently."""
    left_out: tuple[tuple[str, int], ...] = ()
    """Parts of the controller with the number of their unexpected errors that left out one job, node or row since its start."""
    version: str = ""
    """Version of the controller that runs; empty when it does not answer."""
    started_s: float = 0.0
    """Its start, seconds since the Unix epoch."""
    standby: str = ""
    """Machine whose slurmctld is active, while the controller of this machine stands by; empty when it does not."""
