"""Status of every mini-cluster on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from slurm.errors import MiniClusterError
from slurm.minicluster.handle import RunningCluster
from slurm.minicluster.host import namespaces
from slurm.minicluster.host.files import ClusterFiles
from slurm.minicluster.host.network import CONTROLLER
from slurm.minicluster.hosts import Hosts
from slurm.minicluster.record import Record, RecordStore

Phase = Literal["booting", "up", "broken", "ended"]
"""broken: a host or slurmctld is down. ended: its owner ended without taking it down; `down` removes the rest."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """One cluster."""

    name: str
    phase: Phase
    owner: str | None
    """Process that takes the cluster down; None when it stays up until `headway-minicluster down`."""
    directory: str
    slurm_conf: str
    nodes: dict[str, str]
    """Node → state as Slurm names it; "crashed" when its namespaces are down, "unknown" when slurmctld does not answer."""
    gpus: int
    rate: str | None
    cgroup: str
    subnet: str
    slurmctld_pid: int | None
    age_s: float


def all_statuses(store: RecordStore | None = None) -> list[ClusterStatus]:
    """Return the status of every cluster of this machine."""
    store = store or RecordStore()
    return [_status(record, store) for record in store.records()]


def _status(record: Record, store: RecordStore) -> ClusterStatus:
    owner = store.owner(record.name)
    holder = record.holders.get(CONTROLLER)
    slurmctld = namespaces.daemon(holder, "slurmctld") if holder is not None else None
    crashed = [node for node in record.nodes if node not in record.holders or not record.holders[node].alive()]
    states = _node_states(record, store) if slurmctld is not None and record.phase == "up" else {}
    nodes = {node: "crashed" if node in crashed else states.get(node, "unknown") for node in record.nodes}
    return ClusterStatus(
        name=record.name,
        phase=_phase(record, owner, whole=slurmctld is not None and not crashed),
        owner=owner,
        directory=record.directory,
        slurm_conf=str(ClusterFiles.of(record.directory).slurm_conf),
        nodes=nodes,
        gpus=record.gpus,
        rate=record.rate,
        cgroup=record.cgroup,
        subnet=record.subnet,
        slurmctld_pid=slurmctld.pid if slurmctld is not None else None,
        age_s=round(time.time() - record.booted_at_s, 1),
    )


def _phase(record: Record, owner: str | None, *, whole: bool) -> Phase:
    if owner is None and not (record.detached and record.has_running_host()):
        return "ended"
    if record.phase == "booting":
        return "booting"
    return "up" if whole else "broken"


def _node_states(record: Record, store: RecordStore) -> dict[str, str]:
    try:
        return RunningCluster(Hosts(record, store)).node_states()
    except MiniClusterError:  # slurmctld may hang, or end at this moment: the states are unknown
        return {}
