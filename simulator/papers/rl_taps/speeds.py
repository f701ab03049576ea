"""Speeds of jobs that run beside each other (equations 3 and 12 to 15), of many clusters at once.

The speed of a job on n GPUs in r racks, in cells a step, is

    v = e n / (1 + rt / tt),    rt = sr (1 + (r - 1) / 5) s,    s = min default bandwidth / min run-time bandwidth

with e the efficiency (equation 10). A link's run-time bandwidth is its default bandwidth over the number of jobs that use it. On
one GPU nothing is reduced: v = e.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simulator.cluster.topology.gpu_links import GpuLinks

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]


_WORD = 64
"""Bits of a word."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Speeds of R jobs of each of B clusters."""

    sets: Words
    """The GPUs of each job as bits, in words of 64 (words, R, B)."""
    gpus: Ints
    """Number of GPUs of each job (B, R)."""
    speed: Floats
    """Cells a step (B, R); 0 for jobs without GPUs."""


class Speeds:
    """The law of speeds on one kind of cluster. Sets of GPUs are bits: then no product of matrices is needed, whose threads would
    take the cores of other processes."""

    def __init__(self, links: GpuLinks, efficiency: float, per_rack: float) -> None:
        """`per_rack` is the relative cost of another rack (0.2)."""
        self._near = bits(links.near.T[:, :, None])
        self._far = bits(links.far.T[:, :, None])
        self._racks = bits((links.rack[:, None] == np.arange(links.num_racks))[:, :, None])
        self._gbs = links.gbs.astype(np.float32)
        self._private = np.float32(links.private_gbs)
        self._efficiency = efficiency
        self._per_rack = per_rack

    @property
    def words(self) -> int:
        """Number of words of a set."""
        return len(self._near)

    def rates(self, owner: npt.NDArray[np.integer], reduction: Floats) -> Rates:
        """Return the speeds of jobs 0 to R - 1 of each cluster: `owner` (B, GPUs) has the job of each GPU, -1 for none, and
        `reduction` (B, R) the jobs' `Jobs.reduction`."""
        jobs = np.arange(reduction.shape[1], dtype=np.int16)
        on = np.ascontiguousarray(owner.T, dtype=np.int16)[:, None, :] == jobs[:, None]
        sets = bits(on)
        gpus = on.sum(0, dtype=np.int16).T.astype(np.int64)
        scale = self._scale(_meets(sets, self._near) & _meets(sets, self._far))
        racks = _meets(sets, self._racks).sum(0, dtype=np.int16)
        reduces = np.where(gpus > 1, reduction * np.sqrt(gpus), 0.0)
        slower = 1.0 + reduces * ((1.0 + self._per_rack * (np.maximum(racks, 1) - 1)) * scale).T
        return Rates(sets, gpus, self._efficiency * gpus / slower)

    def _scale(self, used: Flags) -> Floats:
        """Return s of equation 13 (R, B), of the links that each job uses (links, R, B)."""
        users = used.sum(1, dtype=np.int16)
        shared = self._gbs[:, None] / np.maximum(users, 1).astype(np.float32)
        single = np.where(used, self._gbs[:, None, None], self._private).min(0, initial=self._private)
        multi = np.where(used, shared[:, None, :], self._private).min(0, initial=self._private)
        found: Floats = (single / multi).astype(np.float64)
        return found


def bits(on: Flags) -> Words:
    """Return sets of GPUs (GPUs, R, B) as words (words, R, B)."""
    rest = -len(on) % _WORD
    if rest:
        on = np.concatenate([on, np.zeros((rest, *on.shape[1:]), dtype=np.bool_)])
    octets = np.packbits(on, axis=0, bitorder="little").reshape(-1, _WORD // 8, *on.shape[1:])
    words = octets[:, 0].astype(np.uint64)
    for place in range(1, _WORD // 8):
        words |= octets[:, place].astype(np.uint64) << np.uint64(8 * place)
    return words


def _meets(sets: Words, sides: Words) -> Flags:
    """Return which sets have GPUs in which sides (sides, R, B)."""
    found: Flags = (sets[0] & sides[0][:, :, None]) != 0
    for one, side in zip(sets[1:], sides[1:], strict=True):
        found |= (one & side[:, :, None]) != 0
    return found
