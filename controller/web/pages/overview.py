"""The cluster at a glance: free GPUs by partition, the largest gang that fits, jobs, policy, lease and agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headway_client import NodeUse, Queue, QueueEntry, Status

from controller.base.text import duration


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """GPUs of one partition. Nodes of several partitions count in each."""

    name: str
    nodes: int
    available: int
    gpus: int
    used: int
    free: int
    """Free GPUs on available nodes: the largest gang that fits, as far as GPUs alone decide."""
    free_on_one: int
    """Largest number of free GPUs on one available node."""
    empty_nodes: int
    """Available nodes whose GPUs are all free."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Jobs that wait for the same reason."""

    why: str
    jobs: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Health:
    """One part of Headway: its state in a word, and what there is to say about it."""

    name: str
    good: bool
    state: str
    text: str = ""


def partition_uses(status: Status) -> list[PartitionUse]:
    """Return the use of each managed partition, in the order of the controller's settings."""
    nodes: dict[str, list[NodeUse]] = {name: [] for name in status.partitions}
    for node in status.nodes:
        for name in node.partitions:
            nodes.setdefault(name, []).append(node)
    return [_use(name, found) for name, found in nodes.items()]


def _use(name: str, nodes: list[NodeUse]) -> PartitionUse:
    free = [max(node.gpus - node.gpus_used, 0) for node in nodes if node.available]
    whole = sum(1 for node in nodes if node.available and node.gpus and not node.gpus_used)
    return PartitionUse(
        name, len(nodes), len(free), sum(node.gpus for node in nodes), sum(node.gpus_used for node in nodes), sum(free),
        max(free, default=0), whole,
    )  # fmt: skip


def pending_by_reason(queue: Queue) -> list[Waiting]:
    """Return the waiting jobs by reason, the most frequent first."""
    return _by_reason(entry for entry in queue.entries if entry.waits_for)


def _by_reason(entries: Iterable[QueueEntry]) -> list[Waiting]:
    jobs: Counter[str] = Counter()
    gpus: Counter[str] = Counter()
    for entry in entries:
        jobs[entry.waits_for] += 1
        gpus[entry.waits_for] += entry.num_gpus
    return [Waiting(why, number, gpus[why]) for why, number in jobs.most_common()]


def health(status: Status, now_s: float, ago: str) -> list[Health]:
    """Return the health of controller, policy, lease, watchdog and agents. `ago` is the age of the snapshot as text."""
    read, error = bool(status.snapshot_time_s), other_error(status)
    controller = Health(
        "Controller",
        read and not error,
        "reads Slurm" if read else "has not read Slurm yet",
        f"last read {ago} ago" if read else "",
    )
    policy = status.policy
    deciding = Health(
        "Policy",
        policy.serving,
        policy.name if policy.serving else f"fallback {policy.fallback} decides",
        "" if policy.serving else policy.last_error,
    )
    age = f"{max(now_s - status.lease_time_s, 0.0):.0f} s old" if status.lease_time_s else ""
    state = "stale: Slurm schedules by itself" if status.lease_stale else "renewed"
    lease = Health("Lease", not status.lease_stale, state, age)
    return [controller, deciding, lease, *_watchdog(status, now_s), _agents(status)]


def _watchdog(status: Status, now_s: float) -> list[Health]:
    """Return the watchdog's health; empty where none is needed, in the first minutes, and for an older controller."""
    checked_s, silent = status.watchdog_time_s, status.watchdog_silent
    if not checked_s and not silent:
        return []
    checked = f"checked {duration(now_s - checked_s)} ago" if checked_s else "has not checked"
    text = "held jobs stay held if the controller fails" if silent else ""
    return [Health("Watchdog", not silent, checked, text)]


def _agents(status: Status) -> Health:
    agents = status.agents
    if not agents.served:
        return Health("Agents", good=True, state="none are served", text="speeds are not measured")
    good = agents.connected == agents.nodes and not agents.troubles
    text = f"clocks that differ: {len(agents.skewed)}" if agents.skewed else ""
    return Health("Agents", good, f"{agents.connected} of {agents.nodes} connected", text)


def other_error(status: Status) -> str:
    """Return the controller's last error; empty when there is none, or it is the policy's, which the policy's health has."""
    return "" if status.last_error == status.policy.last_error else status.last_error
