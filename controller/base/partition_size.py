"""Sizes of partitions and kinds of nodes, as the lease has them for job_submit.lua."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LARGEST = 2**53
"""Largest number that Lua reads exactly."""
MOST_KINDS = 16
"""Most kinds of nodes of a partition; one with more has none in the lease, and only its size counts."""
_MOST_TEXT = 32768
_GPU_TYPE = re.compile(r"[^\s,:+=]+")
_Types = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes of a partition that have the same resources. job_submit.lua counts the nodes that are large enough for a job."""

    num_nodes: int
    gpus: int
    cpus: int
    memory_mib: int
    gpus_by_type: _Types = ()

    def __post_init__(self) -> None:
        """Refuse values that a reader could not parse. Raises ValueError."""
        _check((self.num_nodes, self.gpus, self.cpus, self.memory_mib), self.gpus_by_type)

    def __str__(self) -> str:
        """Return it as the lease has it, behind the name of the partition: "4:8:64:256000:a100=8"."""
        return f"{self.num_nodes}:{self.gpus}:{self.cpus}:{self.memory_mib}:{_types(self.gpus_by_type)}"


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """The most that one node of a partition has of each resource. job_submit.lua does not hold a job that asks for more."""

    name: str
    all_gpus: int
    """GPUs of all nodes of the partition."""
    gpus: int
    cpus: int
    memory_mib: int
    gpus_by_type: _Types = ()
    kinds: tuple[NodeKind, ...] = ()
    """Kinds of its nodes; empty: not known."""

    def __post_init__(self) -> None:
        """Refuse values that a reader could not parse. Raises ValueError."""
        _check((self.all_gpus, self.gpus, self.cpus, self.memory_mib), self.gpus_by_type)

    def __str__(self) -> str:
        """Return it as the lease has it: "dl:32:8:64:256000:a100=4+h100=4"."""
        return f"{self.name}:{self.all_gpus}:{self.gpus}:{self.cpus}:{self.memory_mib}:{_types(self.gpus_by_type)}"


def kinds_text(sizes: Iterable[PartitionSize]) -> str:
    """Return the kinds of nodes of partitions as the lease has them: "dl:4:8:64:256000:a100=8,dl:2:0:128:512000:".

    A partition has all of its kinds there, or none: job_submit.lua would take a missing kind for nodes that do not exist.
    """
    parts: list[str] = []
    length = 0
    for size in sizes:
        text = ",".join(f"{size.name}:{kind}" for kind in size.kinds)
        if text and len(size.kinds) <= MOST_KINDS and length + len(text) < _MOST_TEXT:
            parts.append(text)
            length += len(text) + 1
    return ",".join(parts)


def _types(gpus_by_type: _Types) -> str:
    return "+".join(f"{kind}={count}" for kind, count in gpus_by_type)


def _check(numbers: Sequence[int], gpus_by_type: _Types) -> None:
    if not all(0 <= number <= LARGEST for number in (*numbers, *(count for _, count in gpus_by_type))):
        raise ValueError("a number is out of range")
    if not all(_GPU_TYPE.fullmatch(kind) for kind, _ in gpus_by_type):
        raise ValueError(f"not types of GPUs: {gpus_by_type!r}")
