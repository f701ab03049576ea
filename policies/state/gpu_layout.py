"""The GPUs of one kind of node: the sockets, PCIe switches and NVLinks that they share, and the speed of each link."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from itertools import combinations

MOST_GPUS = 64
"""Maximum number of GPUs of a node whose GPUs can be named: a mask has 64 bits."""


class Link(IntEnum):
    """The link between two GPUs of a node, the closest first."""

    NVLINK = 0
    SWITCH = 1
    """Below one PCIe switch."""
    SOCKET = 2
    """Below two PCIe switches of one socket."""
    BETWEEN_SOCKETS = 3
    """QPI, UPI or xGMI."""


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """GPUs by index. Invariant: the first three columns have one entry per GPU, 1 to `MOST_GPUS`; GPUs of one switch are on one
    socket. Speeds are GB/s in each direction between two GPUs; None: not known."""

    socket: tuple[int, ...]
    switch: tuple[int, ...]
    nvlink: tuple[int, ...]
    """GPUs with the same number, from 1 on, reach each other over NVLink; 0: the GPU has none."""
    nvlink_gbyte_s: float | None = None
    switch_gbyte_s: float | None = None
    socket_gbyte_s: float | None = None
    between_sockets_gbyte_s: float | None = None

    @property
    def num_gpus(self) -> int:
        """GPUs of the node."""
        return len(self.socket)

    def link(self, one: int, other: int) -> Link:
        """Return the closest link between two GPUs."""
        if self.nvlink[one] and self.nvlink[one] == self.nvlink[other]:
            return Link.NVLINK
        if self.switch[one] == self.switch[other]:
            return Link.SWITCH
        return Link.SOCKET if self.socket[one] == self.socket[other] else Link.BETWEEN_SOCKETS

    def gbyte_s(self, link: Link) -> float | None:
        """Return the speed of a kind of link."""
        return (self.nvlink_gbyte_s, self.switch_gbyte_s, self.socket_gbyte_s, self.between_sockets_gbyte_s)[link]

    def farthest(self, mask: int) -> Link | None:
        """Return the farthest link between any two of these GPUs; None for a single GPU."""
        return _farthest(self, mask)

    def groups(self, link: Link) -> tuple[int, ...]:
        """Return the masks of the largest groups whose GPUs share that link, by lowest GPU; for `BETWEEN_SOCKETS` all GPUs."""
        return _groups(self, link)


@lru_cache(maxsize=4096)
def _farthest(layout: GpuLayout, mask: int) -> Link | None:
    return max((layout.link(one, other) for one, other in combinations(indices(mask), 2)), default=None)


@lru_cache(maxsize=1024)
def _groups(layout: GpuLayout, link: Link) -> tuple[int, ...]:
    everything = (1,) * layout.num_gpus
    column = (layout.nvlink, layout.switch, layout.socket, everything)[link]
    masks: dict[int, int] = {}
    for gpu, group in enumerate(column):
        if group or link is not Link.NVLINK:
            masks[group] = masks.get(group, 0) | 1 << gpu
    return tuple(masks.values())


def indices(mask: int) -> list[int]:
    """Return the GPUs of a mask, in order."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]


def gpus_text(mask: int) -> str:
    """Return the GPUs of a mask as Slurm writes them: "0-3,6"; "" for none."""
    parts: list[list[int]] = []
    for gpu in indices(mask):
        if parts and gpu == parts[-1][1] + 1:
            parts[-1][1] = gpu
        else:
            parts.append([gpu, gpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def mask_problem(mask: int, count: int, gpus: int, taken: int) -> str:
    """Return what is wrong with these GPUs for a job of `count` GPUs on a node of `gpus`, `taken` of which others have; "" if
    nothing is."""
    if mask < 0 or mask >> min(gpus, MOST_GPUS):
        last = min(gpus, MOST_GPUS) - 1
        return f"GPU {abs(mask).bit_length() - 1} does not exist there; name some of 0 to {last}"
    if mask and mask.bit_count() != count:
        return f"{mask.bit_count()} GPUs ({gpus_text(mask)}) are named for {count}; name {count}, or none"
    if mask & taken:
        return f"GPU {gpus_text(mask & taken)} is named, and another job has it; name free ones, each for one job"
    return ""
