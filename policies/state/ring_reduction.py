"""Seconds of a ring reduction, by GPUs, bytes and racks: the curves of RL-TAPS."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import NamedTuple


class RingSpeed(NamedTuple):
    """GB/s of a ring of nodes without other jobs; infinite where it passes no such link."""

    nic: float = inf
    """Speed of its narrowest NIC."""
    uplink: float = inf
    """Speed of its narrowest link between switches."""

    @property
    def narrowest(self) -> float:
        """The least of all its links."""
        return min(self)


@dataclass(frozen=True, slots=True)
class RingTime:
    """Seconds of a ring reduction in one rack: square roots of the GPUs at two sizes, straight lines between and beyond.

    RL-TAPS (section 4.6.3) measured 100 and 500 MB on up to 16 P100, and shows the curves in figure 3; the coefficients are those
    of its authors' published simulator (28.29 and 139.77 ms). Another rack costs a fifth (equation 12).
    """

    small_s: float = 0.02829
    """Seconds of a reduction of 100 MB, before the factors for GPUs and racks."""
    large_s: float = 0.13977
    """At 500 MB."""
    per_rack: float = 0.2

    @staticmethod
    def parts(size: float) -> tuple[float, float]:
        """Return the weights of both curves for `size` bytes."""
        mb = size / 1e6
        if mb <= 100:
            return mb / 100, 0.0
        return (500 - mb) / 400, (mb - 100) / 400

    def seconds(self, gpus: int, size: float, racks: int) -> float:
        """Return the seconds of one reduction of `size` bytes over GPUs in `racks` racks."""
        small, large = self.parts(size)
        return (small * self.small_s + large * self.large_s) * sqrt(gpus) * (1 + (racks - 1) * self.per_rack)

    def seconds_over(self, gpus: int, size: float, racks: int, sent: float, speed: RingSpeed) -> float:
        """Return the same over links of that speed, where each node sends `sent` bytes (one node: 0).

        The published curves hold for the network of the paper. Where links are slower, the bytes take so much longer than there;
        NICs and uplinks are each compared with the paper's, so that a ring is never faster over more racks.
        A ring that was fitted to measurements holds for their network; it takes at least the time of the bytes.
        """
        alone_s = self.seconds(gpus, size, racks)
        if self != RL_TAPS_RING:
            return max(alone_s, sent / GB * (1 / speed.narrowest))
        return alone_s + sent / GB * max(0.0, 1 / speed.nic - 1 / NIC_GBYTE_S, 1 / speed.uplink - 1 / UPLINK_GBYTE_S)


GB = 1e9
NIC_GBYTE_S = 12.5
"""Links in a rack of RL-TAPS (table 1): InfiniBand EDR."""
UPLINK_GBYTE_S = 6.25
"""Links between its racks, whose cost the factor for racks includes."""
RL_TAPS_RING = RingTime()
"""As published."""
